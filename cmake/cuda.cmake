# The CUDA plug-in, lib/aril/libaril_cuda.so: built where nvcc is found. It links the runtime statically and nothing of
# Aril; cuBLASLt, cuDNN, cuFFT and NVRTC are opened at run time.
#   ARIL_WITH_CUDA   AUTO, ON (must be there) or OFF
#   ARIL_CUDA_ARCHS  auto (the GPUs of this machine, or 90), release, or a list such as "80;90"
#   ARIL_CUDA_LINES  ON: source lines for profilers and compute-sanitizer, which name this folder

set(ARIL_WITH_CUDA AUTO CACHE STRING "The CUDA plug-in: AUTO, ON (nvcc must be there) or OFF")
set(ARIL_CUDA_ARCHS auto CACHE STRING "GPUs to compile for: auto, release, or a list such as \"80;90\"")
option(ARIL_CUDA_LINES "Source lines in the CUDA plug-in, for profilers and compute-sanitizer" OFF)
set_property(CACHE ARIL_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(have_cuda OFF)

# The compute capabilities of this machine's GPUs, as nvcc sees them; 90 where there is none.
function(aril_cuda_archs result)
    set(archs ${ARIL_CUDA_ARCHS})
    if(archs STREQUAL "release") # machine code for each, and code that later GPUs compile
        set(archs 75-real 80-real 86-real 89-real 90)
    elseif(archs STREQUAL "auto")
        get_filename_component(bin ${ARIL_NVCC} DIRECTORY)
        execute_process(COMMAND ${bin}/__nvcc_device_query
            OUTPUT_VARIABLE archs RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
        string(REPLACE "," ";" archs "${archs}")
        list(REMOVE_DUPLICATES archs)
        if(failed OR NOT archs MATCHES "^[0-9;]+$")
            set(archs 90)
        endif()
        list(TRANSFORM archs APPEND -real)
    endif()
    set(${result} "${archs}" PARENT_SCOPE)
endfunction()

if(NOT ARIL_WITH_CUDA STREQUAL "OFF" AND NOT ARIL_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    find_program(ARIL_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(ARIL_NVCC)
    if(ARIL_NVCC AND CMAKE_CXX_COMPILER)
        aril_cuda_archs(CMAKE_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_COMPILER ${ARIL_NVCC})
        set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
        enable_language(CUDA)
        set(have_cuda ON)
    elseif(ARIL_WITH_CUDA STREQUAL "ON")
        message(FATAL_ERROR "ARIL_WITH_CUDA=ON, but nvcc or a C++ compiler was not found (CUDA 12 or 13)")
    endif()
endif()
string(REPLACE ";" ", " cuda_archs "${CMAKE_CUDA_ARCHITECTURES}")
aril_summary_row("CUDA" "${have_cuda}" "${CMAKE_CUDA_COMPILER_VERSION} for ${cuda_archs}"
    "NVIDIA GPUs, by a plug-in (the CUDA toolkit, 12 or newer)")

# Texts that kernels compiled at run time consist of: see fused/source.c.
set(cuda_texts "")
foreach(text "fused_prelude;src/backend/cuda/fused/prelude.cuh" "fused_arguments;src/backend/cuda/fused/arguments.h"
        "fused_loop;src/backend/cuda/fused/loop.cuh" "convert;src/backend/cuda/convert.cuh"
        "special;src/backend/cuda/special.cuh" "special_inc;src/ops/elementwise/special.inc"
        "formulas;src/backend/cuda/formulas.cuh" "fused_row;src/backend/cuda/fused/row.cuh"
        "block;src/backend/cuda/block.cuh" "philox;src/backend/cuda/philox.cuh")
    list(GET text 0 name)
    list(GET text 1 path)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${path})
    file(READ ${PROJECT_SOURCE_DIR}/${path} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND cuda_texts "extern const char aril_cuda_${name}_text[];\nconst char aril_cuda_${name}_text[] = { ${bytes} 0 };\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/cuda_texts.c @ONLY CONTENT "@cuda_texts@")

if(have_cuda)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS
        ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cu ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.c
        ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cpp)
    list(APPEND cuda_sources ${PROJECT_BINARY_DIR}/cuda_texts.c)

    # Warpgroups' products exist on compute capability 9.0 alone: these files have code for nothing else.
    set(hopper_sources ${cuda_sources})
    list(FILTER hopper_sources INCLUDE REGEX "_wgmma[a-z_]*[.]cu$")
    list(FILTER cuda_sources EXCLUDE REGEX "_wgmma[a-z_]*[.]cu$")
    add_library(aril_cuda_hopper OBJECT ${hopper_sources})
    set_target_properties(aril_cuda_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real POSITION_INDEPENDENT_CODE ON)
    add_library(aril_cuda MODULE ${cuda_sources} $<TARGET_OBJECTS:aril_cuda_hopper>)
    set_target_properties(aril_cuda PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/aril
        LINKER_LANGUAGE CUDA)
    foreach(target aril_cuda aril_cuda_hopper)
        set_target_properties(${target} PROPERTIES CXX_STANDARD 20
            CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON CUDA_RUNTIME_LIBRARY Static)
        target_include_directories(${target} PRIVATE include src)
        target_include_directories(${target} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
        target_compile_options(${target} PRIVATE
            "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;$<$<BOOL:${ARIL_CUDA_LINES}>:-lineinfo>;-Xcompiler=-Wall;-Xcompiler=-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
    endforeach()
    target_link_libraries(aril_cuda PRIVATE dl pthread)
    target_link_options(aril_cuda PRIVATE LINKER:--exclude-libs,ALL LINKER:-z,defs)

    # Formulas agree with the CPU's bit for bit: no contraction into fused multiply-adds.
    foreach(source ${cuda_sources})
        if(source MATCHES "/cuda/(elementwise|index|random|small|update)/")
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>")
        endif()
    endforeach()
    install(TARGETS aril_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/aril)
endif()
