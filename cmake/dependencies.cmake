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
    find_path(ARIL_OPENBLAS_INCLUDE cblas.h HINTS ${OPENBLAS_INCLUDE_DIRS}
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
    "fast matrix products (libopenblas-dev) in place of Aril's own")
aril_summary_row("LAPACK" "${have_lapack}" "in OpenBLAS"
    "det, inverse, solve, cholesky, qr, svd, eigh (libopenblas-dev)")

# ---- For the examples and for working on Aril ------------------------------------------------

find_package(ZLIB QUIET)
aril_summary_row("zlib" "${ZLIB_FOUND}" "${ZLIB_VERSION_STRING}"
    "examples that read gzip files such as Fashion-MNIST (zlib1g-dev)")

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
