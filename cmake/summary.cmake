# The summary at the end of configuring. A part is one row:
#   aril_summary_row(name found detail adds)
# `detail` says what was found, `adds` what the part would add when it is missing.

set_property(GLOBAL PROPERTY ARIL_SUMMARY "")

function(aril_summary_row name found detail adds)
    string(LENGTH "${name}" length)
    math(EXPR pad "14 - ${length}")
    string(REPEAT " " ${pad} spaces)
    if(found)
        set(line "  ${name}${spaces}yes  ${detail}")
    else()
        set(line "  ${name}${spaces}no   it would add: ${adds}")
    endif()
    set_property(GLOBAL APPEND PROPERTY ARIL_SUMMARY "${line}")
endfunction()

function(aril_summary_print)
    get_property(lines GLOBAL PROPERTY ARIL_SUMMARY)
    string(REPLACE ";" "\n" text "${lines}")
    set(kind "${CMAKE_BUILD_TYPE}")
    if(ARIL_SANITIZE)
        string(APPEND kind ", sanitizers: ${ARIL_SANITIZE}")
    endif()
    message("\nAril ${PROJECT_VERSION}: ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}, "
            "${kind}, threads by ${ARIL_THREADS_BY}\n${text}\n")
endfunction()
