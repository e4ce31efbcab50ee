# Tests, examples and example plug-ins: each source file is one program, found by its place,
# so that a new one needs no line here. `aril_test_environment` is what every test is run with.

# Temporary files are in memory, where there is room for them and programs among them may run: hundreds of
# tests write files that Aril syncs, and on a disk they would mostly wait.
if(NOT DEFINED ARIL_TEST_TMP)
    execute_process(RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET COMMAND sh -c
        "df -Pk /dev/shm | awk 'END { exit !($4 >= 4000000) }' && p=$(mktemp -p /dev/shm) && echo '#!/bin/sh' > $p && chmod +x $p && $p; rc=$?; rm -f $p; exit $rc")
    set(folder /dev/shm)
    if(failed)
        set(folder "")
    endif()
    set(ARIL_TEST_TMP "${folder}" CACHE PATH "Folder of the tests' temporary files; empty: TMPDIR, or /tmp")
endif()

set(aril_test_environment
    ARIL_TEST_DATA=${ARIL_TEST_DATA}
    ARIL_TEST_PLUGINS=${PROJECT_BINARY_DIR}/plugins)
if(ARIL_TEST_TMP)
    list(APPEND aril_test_environment "TMPDIR=${ARIL_TEST_TMP}")
endif()
if(CMAKE_CROSSCOMPILING_EMULATOR)
    string(REPLACE ";" " " emulator "${CMAKE_CROSSCOMPILING_EMULATOR}")
    list(APPEND aril_test_environment "ARIL_TEST_EMULATOR=${emulator}")
endif()

# ---- Example plug-ins: modules that see the public headers and link nothing of Aril ------------

file(GLOB plugin_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/plugin/*.c)
set(plugin_targets "")
foreach(source ${plugin_sources})
    get_filename_component(name ${source} NAME_WE)
    add_library(plugin_${name} MODULE ${source})
    set_target_properties(plugin_${name} PROPERTIES
        PREFIX "" OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins)
    target_include_directories(plugin_${name} PRIVATE include)
    target_link_libraries(plugin_${name} PRIVATE m)
    list(APPEND plugin_targets plugin_${name})
endforeach()

# ---- Tests: linked with libaril.a, so that they can call what is not exported -------------------

set(test_languages c)
if(CMAKE_CXX_COMPILER)
    list(APPEND test_languages cpp)
endif()
file(GLOB support_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.c
    ${PROJECT_SOURCE_DIR}/tests/plugin/strict.c ${PROJECT_SOURCE_DIR}/tests/plugin/strict_run.c)
add_library(aril_test_support STATIC EXCLUDE_FROM_ALL ${support_sources})
set_target_properties(aril_test_support PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(aril_test_support PUBLIC include src tests)
target_compile_definitions(aril_test_support PUBLIC ${ARIL_PRIVATE_DEFINITIONS})
target_link_options(aril_test_support INTERFACE -Wl,-u,test_prepare) # every test may run on a device

# Test programs are many and large: the fastest linker that is there links them.
include(CheckLinkerFlag)
foreach(linker lld gold)
    if(NOT CMAKE_CROSSCOMPILING)
        check_linker_flag(C -fuse-ld=${linker} ARIL_LINKS_WITH_${linker})
    endif()
    if(ARIL_LINKS_WITH_${linker})
        # Without merging strings of debug information, which takes a third of the time of a link.
        target_link_options(aril_test_support INTERFACE $<$<LINK_LANGUAGE:C>:-fuse-ld=${linker}> LINKER:-O0)
        break()
    endif()
endforeach()

foreach(language ${test_languages})
    file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/test_*.${language})
    foreach(source ${test_sources})
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
        target_link_libraries(${name} PRIVATE aril_test_support aril_static)
        if(plugin_targets)
            add_dependencies(${name} ${plugin_targets})
        endif()
        add_test(NAME ${name} COMMAND ${name})
        set_tests_properties(${name} PROPERTIES
            TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${aril_test_environment}")
        if(name MATCHES "thread")
            set_tests_properties(${name} PROPERTIES LABELS threads)
        endif()
    endforeach()
endforeach()

# A server for downloads runs beside them.

if(TARGET test_download)
    target_compile_definitions(test_download PRIVATE ARIL_TEST_SOURCE="${PROJECT_SOURCE_DIR}")
endif()

# The generator of CUDA source needs no CUDA.

target_sources(test_fused_source PRIVATE ${PROJECT_SOURCE_DIR}/src/backend/cuda/fused/source.c
    ${PROJECT_SOURCE_DIR}/src/backend/cuda/fused/source_rows.c
    ${PROJECT_BINARY_DIR}/cuda_texts.c)

# Models with what onnxruntime computes.

foreach(name test_onnx_cases test_onnx_types test_fuzz_onnx)
    target_compile_definitions(${name} PRIVATE
        ONNX_CASES="${PROJECT_SOURCE_DIR}/tests/onnx/cases.bin")
endforeach()

# The plug-in test again with libaril.so: a plug-in works with both.

if(TARGET test_plugin)
    add_executable(test_plugin_shared ${PROJECT_SOURCE_DIR}/tests/backend/test_plugin.c
        ${PROJECT_SOURCE_DIR}/tests/support/test.c)
    set_target_properties(test_plugin_shared PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_include_directories(test_plugin_shared PRIVATE tests)
    target_link_libraries(test_plugin_shared PRIVATE aril m)
    add_dependencies(test_plugin_shared ${plugin_targets})
    add_test(NAME test_plugin_shared COMMAND test_plugin_shared)
    set_tests_properties(test_plugin_shared PROPERTIES ENVIRONMENT "${aril_test_environment}")
endif()

# Golden families: tests/golden/golden.c, once for each FAMILY.inc. `test_golden` builds them all.

file(GLOB golden_cases CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/golden/*.inc)
add_custom_target(test_golden)
foreach(cases ${golden_cases})
    get_filename_component(family ${cases} NAME_WE)
    set(name golden_${family})
    add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/golden/golden.c)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_compile_definitions(${name} PRIVATE GOLDEN_INC="golden/${family}.inc"
        GOLDEN_BIN="${PROJECT_SOURCE_DIR}/tests/golden/${family}.bin")
    target_link_libraries(${name} PRIVATE aril_test_support aril_static)
    add_dependencies(test_golden ${name})
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${aril_test_environment}")
endforeach()

# Every op and every golden value once more for each lower instruction set (docs/cpu.md).

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT ARIL_SANITIZE)
    set(level_programs test_ops)
    foreach(cases ${golden_cases})
        get_filename_component(family ${cases} NAME_WE)
        list(APPEND level_programs golden_${family})
    endforeach()
    foreach(level baseline avx2)
        foreach(name ${level_programs})
            add_test(NAME ${level}_${name} COMMAND ${name})
            set_tests_properties(${level}_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77
                ENVIRONMENT "ARIL_CPU=${level};${aril_test_environment}")
        endforeach()
    endforeach()
endif()

# Tests once more on a device whose memory the host cannot touch: tests/plugin/strict.c. Left out are
# transforms of images, which compute on the host, and one case of optimizers in f32 whose rounding
# differs by more than its tolerance; the same case in f64 agrees.

set(strict_programs test_ops test_ops_grad test_define test_jit_host test_patterns test_each_row test_late_errors test_narrow_casts test_thread_streams
    test_autograd
    test_grad_edges test_graph_ops test_views test_nn test_nn_layers test_nn_loss test_loss test_optim test_optim_state
    test_optim_schedule test_optim_master test_optim_compiled test_jit_strided test_numbers test_everyday
    test_several test_scope test_metrics
    test_checkpoint test_checkpoint_files test_resume test_train test_train_device test_train_autocast
    test_train_misuse test_train_outputs test_train_watch test_data test_splits test_tables test_transform
    test_thread_loader test_npy test_formats test_images test_draw test_tensorboard test_hostile_files)
foreach(cases ${golden_cases})
    get_filename_component(family ${cases} NAME_WE)
    if(NOT family STREQUAL "transform")
        list(APPEND strict_programs golden_${family})
    endif()
endforeach()
file(STRINGS ${PROJECT_SOURCE_DIR}/tests/golden/optim.inc strict_optim_cases REGEX "^CASE\\(")
foreach(line ${strict_optim_cases})
    if(line MATCHES "^CASE\\(\"([^\"]+)\"" AND NOT CMAKE_MATCH_1 STREQUAL "sgd/keras")
        list(APPEND strict_arguments_golden_optim ${CMAKE_MATCH_1})
    endif()
endforeach()
if(NOT "ARIL_HAVE_LAPACK=1" IN_LIST ARIL_PRIVATE_DEFINITIONS) # that it is missing is reported late
    list(REMOVE_ITEM strict_programs golden_linalg)
endif()
foreach(name ${strict_programs})
    add_test(NAME strict_${name} COMMAND ${name} ${strict_arguments_${name}})
    set_tests_properties(strict_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77
        ENVIRONMENT "ARIL_TEST_DEVICE=strict;${aril_test_environment}")
endforeach()
foreach(name golden_nn golden_vision test_optim) # and with rows for some ops only
    add_test(NAME strict_some_${name} COMMAND ${name})
    set_tests_properties(strict_some_${name} PROPERTIES TIMEOUT 600
        ENVIRONMENT "ARIL_TEST_DEVICE=strict;ARIL_STRICT_ROWS=some;${aril_test_environment}")
endforeach()

# Compiled programs, recorded by the device and replayed.
foreach(name test_jit test_jit_state test_module_jit_grad test_train_device)
    add_test(NAME strict_recorded_${name} COMMAND ${name})
    set_tests_properties(strict_recorded_${name} PROPERTIES TIMEOUT 600
        ENVIRONMENT "ARIL_TEST_DEVICE=strict;ARIL_CUDA_GRAPHS=1;${aril_test_environment}")
endforeach()

# And on the example of a plug-in, as docs/plugins.md recommends to authors of others: it has three rows,
# so that nearly all ops are decomposed or fall back.

foreach(name ${strict_programs})
    if(name MATCHES "^(test_ops|golden_)")
        add_test(NAME mirror_${name} COMMAND ${name})
        set_tests_properties(mirror_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77
            ENVIRONMENT "ARIL_TEST_DEVICE=mirror:0;ARIL_PLUGINS=$<TARGET_FILE:plugin_mirror>;${aril_test_environment}")
    endif()
endforeach()

# The same tests on a GPU, and those of the plug-in: `make test-cuda`. They skip where there is no GPU.

if(have_cuda)
    set(cuda_environment "ARIL_PLUGINS=$<TARGET_FILE:aril_cuda>;${aril_test_environment}")
    function(aril_cuda_test name program)
        add_test(NAME cuda_${name} COMMAND ${program} ${strict_arguments_${program}} CONFIGURATIONS Cuda)
        set_tests_properties(cuda_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 LABELS cuda
            ENVIRONMENT "ARIL_TEST_DEVICE=cuda:0;${cuda_environment};${ARGN}")
    endfunction()
    set(cuda_parts 16) # of the programs that go through the whole op table
    foreach(name ${strict_programs} test_precision test_coverage test_sequence_sizes test_conv test_conv_sizes
            test_matmul test_jit test_jit_state test_replay test_small_runs test_merge test_fuse_rows test_fused_bits
            test_module_jit_grad test_train_compiled)
        set(parts 1)
        if(name MATCHES "^test_(ops|ops_grad|graph_ops|each_row)$")
            set(parts ${cuda_parts})
        elseif(name STREQUAL "test_conv") # hundreds of plans, which cuDNN takes its time for
            set(parts 4)
        endif()
        if(parts GREATER 1)
            foreach(part RANGE 1 ${parts})
                math(EXPR at "${part} - 1")
                aril_cuda_test(${name}_${part} ${name} ARIL_TEST_PART=${at}/${parts})
            endforeach()
        else()
            aril_cuda_test(${name} ${name})
        endif()
    endforeach()
    foreach(name test_jit test_jit_state)
        aril_cuda_test(recorded_${name} ${name} ARIL_CUDA_GRAPHS=1)
    endforeach()
    if(TARGET test_cuda)
        add_dependencies(test_cuda aril_cuda)
        set_tests_properties(test_cuda PROPERTIES LABELS cuda
            ENVIRONMENT "ARIL_TEST_CUDA_PLUGIN=$<TARGET_FILE:aril_cuda>;${aril_test_environment}")
    endif()
endif()
# The library with that device, for tests/peers/random.py: `ninja tests/libaril_strict.so`.

add_library(aril_strict SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:aril_objects>
    ${PROJECT_SOURCE_DIR}/tests/plugin/strict.c ${PROJECT_SOURCE_DIR}/tests/plugin/strict_run.c
    ${PROJECT_SOURCE_DIR}/tests/support/device.c)
set_target_properties(aril_strict PROPERTIES LINKER_LANGUAGE C C_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(aril_strict PRIVATE include src tests)
target_compile_definitions(aril_strict PRIVATE ${ARIL_PRIVATE_DEFINITIONS})
target_link_libraries(aril_strict PRIVATE ${ARIL_PRIVATE_LIBS})

# ---- Examples: linked with libaril.so, as a user's program is -------------------------------------

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(examples_${name} ${source})
    set_target_properties(examples_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(examples_${name} PRIVATE aril m)
    if(have_ZLIB)
        target_compile_definitions(examples_${name} PRIVATE ARIL_HAVE_ZLIB=1)
        target_link_libraries(examples_${name} PRIVATE z)
    endif()
    add_test(NAME example_${name} COMMAND examples_${name})
    # Fits run compiled: the log says where one falls back to single operations.
    set_tests_properties(example_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77
        FAIL_REGULAR_EXPRESSION "runs eagerly"
        ENVIRONMENT "ARIL_EXAMPLE_QUICK=1;ARIL_LOG=trace;${aril_test_environment}")
endforeach()

# What the captioner learns, on scenes of one object: it fails below 95 %.
if(NOT ARIL_SANITIZE)
    add_test(NAME example_captioner_learns COMMAND examples_captioner --small)
    set_tests_properties(example_captioner_learns PROPERTIES TIMEOUT 600 ENVIRONMENT "${aril_test_environment}")
endif()

# The example that takes a device, on the plug-in whose memory is apart, on one that does not exist, and on a GPU.
set(device_environment ARIL_EXAMPLE_QUICK=1 ${aril_test_environment})
add_test(NAME example_device_mirror COMMAND examples_device mirror:0)
set_tests_properties(example_device_mirror PROPERTIES TIMEOUT 600
    ENVIRONMENT "ARIL_PLUGINS=$<TARGET_FILE:plugin_mirror>;${device_environment}")
add_test(NAME example_device_unknown COMMAND examples_device nosuch:0)
set_tests_properties(example_device_unknown PROPERTIES TIMEOUT 600
    PASS_REGULAR_EXPRESSION "no device 'nosuch:0'" ENVIRONMENT "${device_environment}")
if(have_cuda)
    add_test(NAME cuda_example_device COMMAND examples_device cuda:0 CONFIGURATIONS Cuda)
    set_tests_properties(cuda_example_device PROPERTIES TIMEOUT 600 LABELS cuda
        SKIP_REGULAR_EXPRESSION "no 'cuda:0'"
        ENVIRONMENT "${cuda_environment};${device_environment}")
endif()

if(TARGET examples_two_layer AND NOT ARIL_SANITIZE)
    if(ARIL_VALGRIND)
        add_test(NAME valgrind_two_layer COMMAND ${ARIL_VALGRIND} --quiet --error-exitcode=9
            --leak-check=full --errors-for-leak-kinds=definite,indirect $<TARGET_FILE:examples_two_layer>)
    else()
        add_test(NAME valgrind_two_layer COMMAND sh -c "echo 'SKIP: no valgrind' && exit 77")
    endif()
    set_tests_properties(valgrind_two_layer PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77
        ENVIRONMENT "ARIL_EXAMPLE_QUICK=1;${aril_test_environment}")
endif()

# ---- Tests of the house itself, and comparisons with other frameworks ---------------------------
# The first look at the plain build alone. The second run by `make test-peers`.

set(script_environment
    ${aril_test_environment}
    ARIL_SOURCE_DIR=${PROJECT_SOURCE_DIR} ARIL_BUILD_DIR=${PROJECT_BINARY_DIR}
    ARIL_VERSION=${PROJECT_VERSION} CC=${CMAKE_C_COMPILER} CXX=${CMAKE_CXX_COMPILER}
    CMAKE=${CMAKE_COMMAND})
if(NOT ARIL_SANITIZE)
    foreach(name includes rooms layout exports declared install files doc_code bench command zoo_get deps make
            reference doc_names doc_diffs wrong_calls cuda_rows caffe_command
            headers-gcc headers-clang api-gcc api-clang numbers-gcc numbers-clang)
        string(REPLACE "-" ";" command ${name}) # the script, and which compiler it tries
        string(REPLACE "-" "_" name ${name})
        add_test(NAME structure_${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/structure/${command})
        set_tests_properties(structure_${name} PROPERTIES
            TIMEOUT 600 SKIP_RETURN_CODE 77 LABELS structure ENVIRONMENT "${script_environment}")
    endforeach()
endif()

file(GLOB peers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/peers/*.py)
foreach(script ${peers})
    get_filename_component(name ${script} NAME_WE)
    add_test(NAME peer_${name} COMMAND python3 ${script} CONFIGURATIONS Peers)
    set_tests_properties(peer_${name} PROPERTIES
        TIMEOUT 1800 SKIP_RETURN_CODE 77 LABELS peers ENVIRONMENT "${script_environment}")
endforeach()
