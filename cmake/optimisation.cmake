# Optimisation flags, by folder.
#
# Folders of kernels are plain loops that pay when they are vectorised: -O3. Sanitized builds stay at -O1, where
# unrolled loops with a check at every step take too long to compile.
set(vectorised_folders backend/cpu backend/onednn data/image)
set(vectorised_files backend/activation.c core/convert.c core/dtype_convert.c core/move.c core/rng.c)

# Folders of src/ops hold references, which rarely run. But some ops have no other kernel, and a few of those take
# 10% to 30% more time at -O2: factorizations and determinants, full, fold.
list(APPEND vectorised_folders ops/linalg ops/shape)
list(APPEND vectorised_files ops/vision/unfold.c)

# Sanitized tests draw hundreds of millions of random numbers.
set(sanitized_fast_files core/rng.c)

# A product may fuse its multiplications and additions: nothing else is compared with it bit by bit.
set(fused_folders backend/cpu/linalg)
set(fused_files backend/cpu/norm/batch_norm.c backend/cpu/vision/conv.c backend/cpu/vision/conv_depth.c
    backend/cpu/vision/conv_lanes.c backend/cpu/vision/conv_lanes_grad.c)

# gcc leaves some chains of additions without fused instructions, where it takes that for faster. Then the bits of
# a product would depend on the tile that computes it.
include(CheckCCompilerFlag)
set(fused_options -ffp-contract=fast)
check_c_compiler_flag(--param=avoid-fma-max-bits=0 ARIL_ALWAYS_FMA)
if(ARIL_ALWAYS_FMA)
    list(APPEND fused_options --param=avoid-fma-max-bits=0)
endif()

# in_folders(SOURCE RESULT FOLDER...): whether a source of src/ is in one of the folders, or is one of the files
function(in_folders source result)
    set(${result} FALSE PARENT_SCOPE)
    foreach(folder ${ARGN})
        string(FIND "${source}" "${PROJECT_SOURCE_DIR}/src/${folder}" at)
        if(at EQUAL 0)
            set(${result} TRUE PARENT_SCOPE)
        endif()
    endforeach()
endfunction()

foreach(source ${ARIL_SOURCES})
    in_folders(${source} vectorised ${vectorised_folders} ${vectorised_files})
    in_folders(${source} fused ${fused_folders} ${fused_files})
    if(vectorised AND NOT ARIL_SANITIZE)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O3)
    endif()
    in_folders(${source} sanitized_fast ${sanitized_fast_files})
    if(sanitized_fast AND ARIL_SANITIZE)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O2)
    endif()
    if(fused)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${fused_options})
    endif()
endforeach()

# The machine's peak is that of fused multiply-adds.
set(peak_options -O3 -ffp-contract=fast -Wno-psabi)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/core/peak.c PROPERTIES COMPILE_OPTIONS "${peak_options}")

# The eager path counts nanoseconds: small loops stay loops.
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/ops/table/apply.c ${PROJECT_SOURCE_DIR}/src/autograd/backward.c
        APPEND PROPERTY COMPILE_OPTIONS -fno-tree-loop-distribute-patterns)
endif()
