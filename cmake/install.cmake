# make install PREFIX=...: libraries, headers, the tool, and files for pkg-config and find_package.
# Everything installed finds the rest by its own place, so that the tree can be moved.

include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/aril)

install(TARGETS aril aril_static EXPORT arilTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(ARIL_BUNDLED)
    # One file under the name that the loader asks for, the linker's name beside it, and its licence.
    install(FILES ${ARIL_BUNDLED} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libdnnl.so.3)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/bundled)
    file(CREATE_LINK libdnnl.so.3 ${PROJECT_BINARY_DIR}/bundled/libdnnl.so SYMBOLIC)
    install(FILES ${PROJECT_BINARY_DIR}/bundled/libdnnl.so DESTINATION ${CMAKE_INSTALL_LIBDIR})
    target_link_directories(aril_static INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_LIBDIR}>)
    get_filename_component(onednn_doc ${ARIL_BUNDLED}/../../share/doc/onednn ABSOLUTE)
    if(EXISTS ${onednn_doc})
        install(DIRECTORY ${onednn_doc} DESTINATION ${CMAKE_INSTALL_DOCDIR})
    endif()
endif()
install(DIRECTORY include/aril DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT arilTargets NAMESPACE aril:: DESTINATION ${config_dir})

if(TARGET aril_tool)
    file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    set_target_properties(aril_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS aril_tool DESTINATION ${CMAKE_INSTALL_BINDIR})

    # The tool writes its own pages: one for each command, and the completion of words for bash.
    set(pages ${PROJECT_BINARY_DIR}/share)
    add_custom_command(OUTPUT ${pages}/stamp
        COMMAND ${PROJECT_SOURCE_DIR}/scripts/pages ${pages} $<TARGET_FILE:aril_tool>
        DEPENDS aril_tool ${PROJECT_SOURCE_DIR}/scripts/pages VERBATIM)
    if(NOT CMAKE_CROSSCOMPILING AND NOT ARIL_SANITIZE)
        add_custom_target(pages ALL DEPENDS ${pages}/stamp)
        install(DIRECTORY ${pages}/man DESTINATION ${CMAKE_INSTALL_DATADIR})
        install(DIRECTORY ${pages}/bash-completion DESTINATION ${CMAKE_INSTALL_DATADIR})
    endif()
endif()

# The API reference, from the headers: a page with a search box, and man pages of section 3.
find_program(ARIL_PYTHON python3)
mark_as_advanced(ARIL_PYTHON)
aril_summary_row("reference" "${ARIL_PYTHON}" "by python3"
    "the API reference and man pages of all functions (python3)")
if(ARIL_PYTHON)
    set(reference ${PROJECT_BINARY_DIR}/reference)
    file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/aril/*.h)
    add_custom_command(OUTPUT ${reference}/html/index.html
        COMMAND ${ARIL_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/reference --man ${reference}/man --html ${reference}/html
        DEPENDS ${public_headers} ${PROJECT_SOURCE_DIR}/scripts/reference ${PROJECT_SOURCE_DIR}/scripts/reference.html
        COMMENT "Writing the API reference" VERBATIM)
    add_custom_target(reference ALL DEPENDS ${reference}/html/index.html)
    install(DIRECTORY ${reference}/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
    install(FILES ${reference}/html/index.html DESTINATION ${CMAKE_INSTALL_DOCDIR}/reference OPTIONAL)
endif()

configure_package_config_file(cmake/arilConfig.cmake.in arilConfig.cmake
    INSTALL_DESTINATION ${config_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(arilConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/arilConfig.cmake ${PROJECT_BINARY_DIR}/arilConfigVersion.cmake
    DESTINATION ${config_dir})

set(PC_LIBS_PRIVATE "")
foreach(dir ${ARIL_LIB_DIRS})
    string(APPEND PC_LIBS_PRIVATE " -L${dir}")
endforeach()
if(ARIL_BUNDLED)
    string(APPEND PC_LIBS_PRIVATE " -Wl,-rpath,\${libdir}")
endif()
foreach(lib ${ARIL_PRIVATE_LIBS})
    string(APPEND PC_LIBS_PRIVATE " -l${lib}")
endforeach()
file(RELATIVE_PATH PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
configure_file(cmake/aril.pc.in aril.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/aril.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
