# Writes the source that defines kVersion (version.h) if its contents change. Runs in each build, because the commit may
# differ.
#   cmake -DVERSION=0.1.0 -DBUILD_TYPE=Release -DSOURCE=DIR -DOUT=FILE -P version.cmake
execute_process(COMMAND git --no-optional-locks -C ${SOURCE} describe --always --dirty=-modified --exclude=* --abbrev=12
                OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)  # no git, or sources from an archive
  set(commit "unknown commit")
else()
  set(commit "commit ${commit}")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "cli/version.h"

const char* const muo::cli::kVersion = "@VERSION@ (@commit@, @BUILD_TYPE@)";
]] @ONLY)
