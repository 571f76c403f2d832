# Writes OUT, the definitions of tools/build_commit.h, from the history of the sources in DIR; leaves it alone where it
# says so already, or every build would link the program anew. A repository around unpacked sources is not their history.

set(commit unknown)
set(number 0)
if(EXISTS ${DIR}/.git)
  execute_process(COMMAND git -C ${DIR} rev-parse --short=9 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE has_no_history)
  if(NOT has_no_history)
    set(commit ${head})
    execute_process(COMMAND git -C ${DIR} rev-list --count HEAD
      OUTPUT_VARIABLE number OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    # Untracked files count where builds look for sources; no lock is taken, as somebody may commit meanwhile.
    execute_process(COMMAND git -C ${DIR} --no-optional-locks status --porcelain -- src tools include cmake CMakeLists.txt
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit -changed)
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "build_commit.h"

namespace tessera {

const char* const kBuildCommit = "@commit@";
const int kBuildNumber = @number@;

}  // namespace tessera
]] @ONLY)
