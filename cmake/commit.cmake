# Writes OUTPUT, a source with the commit that SOURCE_DIR is at, and a "+" behind it where files differ
# from it; nothing outside of git. Run at every build: the file changes with the commit alone.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)
  set(commit "")
else()
  execute_process(COMMAND git -C ${SOURCE_DIR} diff --quiet HEAD -- src cmake CMakeLists.txt RESULT_VARIABLE differs ERROR_QUIET)
  if(differs)
    string(APPEND commit "+")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
namespace danlu::eval {
extern const char* const kSourceCommit;
const char* const kSourceCommit = "@commit@";
}  // namespace danlu::eval
]])
