# What the library can use. Nothing here but the threads of the C library is required. Sets
#   ARIL_PRIVATE_DEFINITIONS, ARIL_PRIVATE_OPTIONS, ARIL_PRIVATE_INCLUDES, ARIL_PRIVATE_LIBS
# and one summary row a part. Libraries are given by name (`m`, `openblas`), with an ARIL_LIB_DIRS entry
# where the linker would not look, so that the installed files name no directory of this build.

include(CheckCSourceCompiles)
include(CMakePushCheckState)
find_package(PkgConfig QUIET)

set(ARIL_PRIVATE_DEFINITIONS "")
set(ARIL_PRIVATE_OPTIONS "")
set(ARIL_PRIVATE_INCLUDES "")
set(ARIL_PRIVATE_LIBS m dl pthread)
set(ARIL_LIB_DIRS "")

# ---- Threads ---------------------------------------------------------------------------------
# A pool of Aril's own is the default: a loop costs it a tenth of libgomp's, and where other programs
# want the cores too libgomp's threads wait by spinning, which can slow a program down fifty times.

if(NOT ARIL_PARALLEL MATCHES "^(openmp|pthread)$")
    message(FATAL_ERROR "ARIL_PARALLEL is \"${ARIL_PARALLEL}\"; it can be pthread or openmp")
endif()
set(use_openmp OFF)
if(ARIL_PARALLEL STREQUAL "openmp")
    find_package(OpenMP QUIET COMPONENTS C)
    if(NOT OpenMP_C_FOUND)
        message(FATAL_ERROR "ARIL_PARALLEL=openmp, but the compiler has no OpenMP (Debian: libgomp1, libomp-dev)")
    endif()
    set(use_openmp ON)
endif()
if(use_openmp)
    set(ARIL_THREADS_BY OpenMP)
    list(APPEND ARIL_PRIVATE_DEFINITIONS ARIL_OPENMP=1)
    list(APPEND ARIL_PRIVATE_OPTIONS ${OpenMP_C_FLAGS})
    list(GET OpenMP_C_LIB_NAMES 0 openmp_lib)
    list(APPEND ARIL_PRIVATE_LIBS ${openmp_lib})
else()
    set(ARIL_THREADS_BY "a pthread pool")
    list(APPEND ARIL_PRIVATE_DEFINITIONS ARIL_PTHREAD_POOL=1)
endif()
# ---- BLAS and LAPACK -------------------------------------------------------------------------

set(have_blas OFF)
set(have_lapack OFF)
if(NOT ARIL_WITH_BLAS STREQUAL "OFF")
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(OPENBLAS QUIET openblas)
    endif()
    find_library(ARIL_OPENBLAS_LIBRARY openblas) # where the linker looks by itself comes first
    find_library(ARIL_OPENBLAS_LIBRARY openblas HINTS ${OPENBLAS_LIBRARY_DIRS})
    # Other packages bring a cblas.h too; OpenBLAS's own has this file beside it.
    find_path(ARIL_OPENBLAS_INCLUDE openblas_config.h HINTS ${OPENBLAS_INCLUDE_DIRS}
        PATH_SUFFIXES openblas openblas-pthread openblas-openmp openblas-serial)
    mark_as_advanced(ARIL_OPENBLAS_LIBRARY ARIL_OPENBLAS_INCLUDE)
    if(ARIL_OPENBLAS_LIBRARY AND ARIL_OPENBLAS_INCLUDE)
        cmake_push_check_state(RESET)
        set(CMAKE_REQUIRED_LIBRARIES ${ARIL_OPENBLAS_LIBRARY} m)
        set(CMAKE_REQUIRED_INCLUDES ${ARIL_OPENBLAS_INCLUDE})
        set(CMAKE_REQUIRED_QUIET ON)
        check_c_source_compiles("#include <cblas.h>
            int main(void) { float a = 1, c = 0;
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &a, 1, &a, 1, 0, &c, 1); return (int)c; }"
            ARIL_OPENBLAS_HAS_CBLAS)
        check_c_source_compiles(
            "void dgetrf_(int *, int *, double *, int *, int *, int *);
            int main(void) { int n = 1, p, info; double a = 1; dgetrf_(&n, &n, &a, &n, &p, &info); return info; }"
            ARIL_OPENBLAS_HAS_LAPACK)
        cmake_pop_check_state()
        if(ARIL_OPENBLAS_HAS_CBLAS)
            set(have_blas ON)
            list(APPEND ARIL_PRIVATE_DEFINITIONS ARIL_HAVE_BLAS=1)
            list(APPEND ARIL_PRIVATE_INCLUDES ${ARIL_OPENBLAS_INCLUDE})
            list(APPEND ARIL_PRIVATE_LIBS openblas)
            get_filename_component(dir ${ARIL_OPENBLAS_LIBRARY} DIRECTORY)
            if(NOT dir IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
                list(APPEND ARIL_LIB_DIRS ${dir})
                link_directories(${dir})
            endif()
            if(ARIL_OPENBLAS_HAS_LAPACK)
                set(have_lapack ON)
                list(APPEND ARIL_PRIVATE_DEFINITIONS ARIL_HAVE_LAPACK=1)
            endif()
        endif()
    endif()
    if(ARIL_WITH_BLAS STREQUAL "ON" AND NOT have_lapack)
        message(FATAL_ERROR "ARIL_WITH_BLAS=ON, but no OpenBLAS with LAPACK was found (Debian: libopenblas-dev)")
    endif()
endif()
aril_summary_row("BLAS" "${have_blas}" "OpenBLAS ${OPENBLAS_VERSION}"
    "other matrix products (libopenblas-dev), behind Aril's own")
aril_summary_row("LAPACK" "${have_lapack}" "in OpenBLAS"
    "det, inverse, solve, cholesky, qr, svd, eigh (libopenblas-dev)")

# ---- oneDNN ----------------------------------------------------------------------------------
# One that CMake or pkg-config knows is preferred; else the one that scripts/deps puts into build/deps.
# A library from a place where the loader does not look by itself is installed beside libaril:
# ARIL_BUNDLED is that file.

set(have_onednn OFF)
set(ARIL_BUNDLED "")
set(onednn_version "")
if(NOT ARIL_WITH_ONEDNN STREQUAL "OFF")
    set(onednn_library "")
    set(onednn_include "")
    set(onednn_why "it was not found")
    find_package(dnnl 3.2 CONFIG QUIET)
    if(TARGET DNNL::dnnl)
        get_target_property(onednn_include DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
        get_target_property(onednn_library DNNL::dnnl LOCATION)
    elseif(PKG_CONFIG_FOUND)
        pkg_check_modules(ARIL_PC_ONEDNN QUIET dnnl>=3.2)
        if(ARIL_PC_ONEDNN_FOUND)
            set(onednn_library "${ARIL_PC_ONEDNN_LINK_LIBRARIES}")
            set(onednn_include "${ARIL_PC_ONEDNN_INCLUDEDIR}")
        endif()
    endif()
    if(NOT onednn_library)
        foreach(deps ${PROJECT_BINARY_DIR}/deps ${PROJECT_SOURCE_DIR}/build/deps)
            if(EXISTS ${deps}/lib/libdnnl.so AND EXISTS ${deps}/include/oneapi/dnnl/dnnl.h)
                set(onednn_library ${deps}/lib/libdnnl.so)
                set(onednn_include ${deps}/include)
                break()
            endif()
        endforeach()
    endif()
    if(onednn_library)
        # With OpenMP, Aril tells each thread to use no others: it has threads of its own.
        cmake_push_check_state(RESET)
        set(CMAKE_REQUIRED_LIBRARIES ${onednn_library})
        set(CMAKE_REQUIRED_INCLUDES ${onednn_include})
        set(CMAKE_REQUIRED_QUIET ON)
        unset(ARIL_ONEDNN_SERIAL CACHE)
        unset(ARIL_ONEDNN_OPENMP CACHE)
        check_c_source_compiles("#include <oneapi/dnnl/dnnl.h>
            #if DNNL_CPU_THREADING_RUNTIME != DNNL_RUNTIME_SEQ || DNNL_VERSION_MAJOR < 3
            #error
            #endif
            int main(void) { return dnnl_version()->major; }" ARIL_ONEDNN_SERIAL)
        list(APPEND CMAKE_REQUIRED_LIBRARIES gomp)
        check_c_source_compiles("#include <oneapi/dnnl/dnnl.h>
            #if DNNL_CPU_THREADING_RUNTIME != DNNL_RUNTIME_OMP || DNNL_VERSION_MAJOR < 3
            #error
            #endif
            void omp_set_num_threads(int);
            int main(void) { omp_set_num_threads(1); return dnnl_version()->major; }" ARIL_ONEDNN_OPENMP)
        cmake_pop_check_state()
        set(onednn_why "${onednn_library} is not for OpenMP (libgomp), or is too old")
    endif()
    if(onednn_library AND (ARIL_ONEDNN_SERIAL OR ARIL_ONEDNN_OPENMP))
        set(have_onednn ON)
        file(STRINGS ${onednn_include}/oneapi/dnnl/dnnl_version.h version_lines
            REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
        string(REGEX REPLACE "[^0-9;]" "" version_numbers "${version_lines}")
        string(REPLACE ";" "." onednn_version "${version_numbers}")
        list(APPEND ARIL_PRIVATE_DEFINITIONS ARIL_HAVE_ONEDNN=1)
        if(NOT onednn_include IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
            list(APPEND ARIL_PRIVATE_INCLUDES ${onednn_include})
        endif()
        list(APPEND ARIL_PRIVATE_LIBS dnnl)
        if(ARIL_ONEDNN_OPENMP)
            list(APPEND ARIL_PRIVATE_DEFINITIONS ARIL_ONEDNN_OPENMP=1)
            list(APPEND ARIL_PRIVATE_LIBS gomp)
        endif()
        get_filename_component(dir ${onednn_library} DIRECTORY)
        if(NOT dir IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
            link_directories(BEFORE ${dir})
            get_filename_component(ARIL_BUNDLED ${onednn_library} REALPATH)
        endif()
    elseif(ARIL_WITH_ONEDNN STREQUAL "ON")
        message(FATAL_ERROR "ARIL_WITH_ONEDNN=ON, but ${onednn_why}; scripts/deps fetches oneDNN 3.2")
    endif()
endif()
aril_summary_row("oneDNN" "${have_onednn}" "${onednn_version}"
    "fast convolutions, pooling, norms and recurrent layers (3.2 or newer: scripts/deps fetches it)")

# ---- Files and data ------------------------------------------------------------------------------
# aril_part(WORD name header libraries suffixes package adds): a library that is linked where it is found, unless
# ARIL_WITH_<WORD> is OFF. Sets have_<WORD> and defines ARIL_HAVE_<WORD>, for src/formats and src/data alone:
#   ARIL_FILE_DEFINITIONS, ARIL_FILE_INCLUDES

set(ARIL_FILE_DEFINITIONS "")
set(ARIL_FILE_INCLUDES "")

macro(aril_part word name header libraries suffixes package adds)
    set(have_${word} OFF)
    if(NOT ARIL_WITH_${word} STREQUAL "OFF")
        find_library(ARIL_${word}_LIBRARY NAMES ${libraries})
        find_path(ARIL_${word}_INCLUDE ${header} PATH_SUFFIXES ${suffixes})
        mark_as_advanced(ARIL_${word}_LIBRARY ARIL_${word}_INCLUDE)
        if(ARIL_${word}_LIBRARY AND ARIL_${word}_INCLUDE)
            set(have_${word} ON)
            list(APPEND ARIL_FILE_DEFINITIONS ARIL_HAVE_${word}=1)
            if(NOT ARIL_${word}_INCLUDE IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
                list(APPEND ARIL_FILE_INCLUDES ${ARIL_${word}_INCLUDE})
            endif()
            get_filename_component(part_lib ${ARIL_${word}_LIBRARY} NAME_WE)
            string(REGEX REPLACE "^lib" "" part_lib ${part_lib})
            list(APPEND ARIL_PRIVATE_LIBS ${part_lib})
            get_filename_component(part_dir ${ARIL_${word}_LIBRARY} DIRECTORY)
            if(NOT part_dir IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
                list(APPEND ARIL_LIB_DIRS ${part_dir})
                link_directories(${part_dir})
            endif()
        elseif(ARIL_WITH_${word} STREQUAL "ON")
            message(FATAL_ERROR "ARIL_WITH_${word}=ON, but ${name} was not found (Debian: ${package})")
        endif()
    endif()
    aril_summary_row("${name}" "${have_${word}}" "${ARIL_${word}_LIBRARY}" "${adds} (${package})")
endmacro()

aril_part(ZLIB "zlib" zlib.h "z" "" zlib1g-dev "files in gzip (Fashion-MNIST), compressed .npz, smaller PNG files")
aril_part(JPEG "libjpeg" jpeglib.h "jpeg" "" libjpeg-dev "JPEG images")
aril_part(PNG "libpng" png.h "png16;png" "" libpng-dev "reading PNG images")

# HDF5 draws in many other libraries. It is opened when a first file is written: the build needs its headers alone.
set(have_HDF5 OFF)
if(NOT ARIL_WITH_HDF5 STREQUAL "OFF")
    find_library(ARIL_HDF5_LIBRARY NAMES hdf5_serial hdf5 PATH_SUFFIXES hdf5/serial)
    find_path(ARIL_HDF5_INCLUDE hdf5.h PATH_SUFFIXES hdf5/serial)
    mark_as_advanced(ARIL_HDF5_LIBRARY ARIL_HDF5_INCLUDE)
    if(ARIL_HDF5_LIBRARY AND ARIL_HDF5_INCLUDE)
        set(have_HDF5 ON)
        get_filename_component(hdf5_file ${ARIL_HDF5_LIBRARY} REALPATH)
        get_filename_component(hdf5_file ${hdf5_file} NAME)
        string(REGEX REPLACE "([.]so[.][0-9]+).*" "\\1" hdf5_file ${hdf5_file}) # what programs load
        list(APPEND ARIL_FILE_DEFINITIONS ARIL_HAVE_HDF5=1 ARIL_HDF5_FILE="${hdf5_file}")
        if(NOT ARIL_HDF5_INCLUDE IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
            list(APPEND ARIL_FILE_INCLUDES ${ARIL_HDF5_INCLUDE})
        endif()
    elseif(ARIL_WITH_HDF5 STREQUAL "ON")
        message(FATAL_ERROR "ARIL_WITH_HDF5=ON, but HDF5 was not found (Debian: libhdf5-dev)")
    endif()
endif()
aril_summary_row("HDF5" "${have_HDF5}" "${hdf5_file}, opened at run time" "writing HDF5 (libhdf5-dev)")

# libcurl too is opened when it is first used: the build needs its headers alone.
set(have_CURL OFF)
set(curl_file "libcurl.so.4")
if(NOT ARIL_WITH_CURL STREQUAL "OFF")
    find_path(ARIL_CURL_INCLUDE curl/curl.h)
    find_library(ARIL_CURL_LIBRARY NAMES curl curl-gnutls)
    mark_as_advanced(ARIL_CURL_LIBRARY ARIL_CURL_INCLUDE)
    if(ARIL_CURL_INCLUDE)
        set(have_CURL ON)
        if(ARIL_CURL_LIBRARY)
            get_filename_component(curl_file ${ARIL_CURL_LIBRARY} REALPATH)
            get_filename_component(curl_file ${curl_file} NAME)
            string(REGEX REPLACE "([.]so[.][0-9]+).*" "\\1" curl_file ${curl_file})
        endif()
        list(APPEND ARIL_FILE_DEFINITIONS ARIL_HAVE_CURL=1 ARIL_CURL_FILE="${curl_file}")
        if(NOT ARIL_CURL_INCLUDE IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
            list(APPEND ARIL_FILE_INCLUDES ${ARIL_CURL_INCLUDE})
        endif()
    elseif(ARIL_WITH_CURL STREQUAL "ON")
        message(FATAL_ERROR "ARIL_WITH_CURL=ON, but libcurl was not found (Debian: libcurl4-openssl-dev)")
    endif()
endif()
aril_summary_row("libcurl" "${have_CURL}" "${curl_file}, opened at run time"
    "downloads of published weights: `aril zoo get` (libcurl4-openssl-dev)")

# ---- For working on Aril ---------------------------------------------------------------------

find_program(ARIL_CLANG clang)
find_program(ARIL_CLANGXX clang++)
find_program(ARIL_CLANG_TIDY clang-tidy)
find_program(ARIL_CLANG_FORMAT clang-format)
find_program(ARIL_VALGRIND valgrind)
mark_as_advanced(ARIL_CLANG ARIL_CLANGXX ARIL_CLANG_TIDY ARIL_CLANG_FORMAT ARIL_VALGRIND)
set(have_clang OFF)
if(ARIL_CLANG AND ARIL_CLANG_TIDY AND ARIL_CLANG_FORMAT)
    set(have_clang ON)
endif()
aril_summary_row("clang tools" "${have_clang}" "clang, clang-tidy, clang-format"
    "`make lint`, `make format` and header tests with clang (clang, clang-tidy, clang-format)")
aril_summary_row("valgrind" "${ARIL_VALGRIND}" "${ARIL_VALGRIND}"
    "a leak test of the two-layer example (valgrind)")
