# A room is a folder under src/: one static library `danlu_<room>`, all *.cpp in it, headers beside
# sources, includes written as "room/header.h". docs/rooms.txt says who may include whom.

# For targets without a loop that runs long: they compile in three quarters of the time.
function(danlu_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

function(danlu_room name)
  cmake_parse_arguments(ARG "TORCH;COLD" "" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(plugin|runner|cuda)/")
  if(NOT sources)
    add_library(danlu_${name} INTERFACE)
    foreach(dep ${ARG_DEPS})
      target_link_libraries(danlu_${name} INTERFACE danlu_${dep})
    endforeach()
    return()
  endif()
  add_library(danlu_${name} STATIC ${sources})
  target_include_directories(danlu_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(danlu_${name} PUBLIC danlu_${dep})
  endforeach()
  target_link_libraries(danlu_${name} PUBLIC ${ARG_LIBS})
  if(ARG_TORCH)
    target_include_directories(danlu_${name} SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
    # ATen's own headers then include the operators that they need, not all two thousand.
    target_compile_definitions(danlu_${name} PUBLIC AT_PER_OPERATOR_HEADERS)
    # Without it at::parallel_for, whose loop is compiled here, runs on one thread.
    target_link_libraries(danlu_${name} PUBLIC ${TORCH_LIBRARIES} OpenMP::OpenMP_CXX)
  elseif(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # To GCC a unit's sources are headers, where a class that holds a type of an anonymous namespace is
    # an error. (Rooms with torch give such types a named one.)
    target_compile_options(danlu_${name} PRIVATE -Wno-subobject-linkage)
  endif()
  if(ARG_COLD)
    danlu_cold(danlu_${name})
  endif()
endfunction()

# Builds a text file into a room as `const char* const danlu::<room>::<symbol>`.
function(danlu_embed room file symbol)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
  file(READ ${CMAKE_SOURCE_DIR}/${file} content)
  set(source ${CMAKE_BINARY_DIR}/embedded/${room}_${symbol}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
namespace danlu::@room@ {
extern const char* const @symbol@;
const char* const @symbol@ = R"danlu(@content@)danlu";
}  // namespace danlu::@room@
]])
  target_sources(danlu_${room} PRIVATE ${source})
endfunction()

# src/<room>/<library>/plugin/*.cpp -> libdanlu_<library>.so, which the room opens at run time: for
# libraries whose symbols must stay out of the process.
function(danlu_plugin room library)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/${library}/plugin/*.cpp)
  add_library(danlu_${library} MODULE ${sources})
  target_include_directories(danlu_${library} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(danlu_${library} PRIVATE ${ARG_LIBS})
  add_dependencies(danlu_${room} danlu_${library})
endfunction()

# src/<room>/cuda/, where libtorch is one for CUDA: its sources in place of src/<room>/cuda_absent.cpp, and its
# kernels where there is nvcc, else what stands for them without.
function(danlu_cuda room)
  if(NOT DANLU_CUDA)
    return()
  endif()
  set(folder ${CMAKE_SOURCE_DIR}/src/${room}/cuda)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  if(kernels AND CMAKE_CUDA_COMPILER)
    add_subdirectory(${folder})
    target_sources(danlu_${room} PRIVATE $<TARGET_OBJECTS:danlu_${room}_kernels>)
    list(REMOVE_ITEM sources ${folder}/kernels_absent.cpp)
  else()
    list(FILTER sources EXCLUDE REGEX "/kernel_entries[^/]*\\.cpp$")
  endif()
  if(TORCH_VERSION VERSION_LESS 2.4)
    list(REMOVE_ITEM sources ${folder}/flash_attention.cpp)
  else()
    list(REMOVE_ITEM sources ${folder}/flash_attention_absent.cpp)
  endif()
  target_sources(danlu_${room} PRIVATE ${sources})
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${room}/cuda_absent.cpp PROPERTIES HEADER_FILE_ONLY ON)
endfunction()

# src/<room>/<folder>/runner/*.cpp -> the program danlu-<folder>, which the room starts from where its
# libraries lie. What it does between its start and its end is measured in system calls: no sanitizer.
function(danlu_runner room folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/${folder}/runner/*.cpp)
  add_executable(danlu-${folder} ${sources})
  target_include_directories(danlu-${folder} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(danlu-${folder} PRIVATE -fno-sanitize=all)
  target_link_options(danlu-${folder} PRIVATE -fno-sanitize=all)
  danlu_cold(danlu-${folder})
  add_dependencies(danlu_${room} danlu-${folder})
endfunction()

function(danlu_whole_archive target)
  foreach(room ${ARGN})
    get_target_property(type danlu_${room} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      target_link_libraries(${target} PRIVATE -Wl,--whole-archive $<TARGET_FILE:danlu_${room}> -Wl,--no-whole-archive)
      add_dependencies(${target} danlu_${room})
      get_target_property(libs danlu_${room} LINK_LIBRARIES)
      foreach(lib ${libs})
        if(NOT lib MATCHES "^danlu_(base|text|media|data|arch|weights|hub|settings|plan|doctor|pictures|device|ops|parallel|layers|models|optim|checkpoint|train|infer|measure|bench|eval|grammar|api|http|board|serve)$")
          target_link_libraries(${target} PRIVATE ${lib})
        endif()
      endforeach()
    endif()
  endforeach()
endfunction()

function(danlu_shared target)
  cmake_parse_arguments(ARG "" "" "ROOMS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/empty.cpp "")
  add_library(${target} SHARED ${CMAKE_BINARY_DIR}/empty.cpp)
  danlu_whole_archive(${target} ${ARG_ROOMS})
endfunction()

function(danlu_engine target)
  cmake_parse_arguments(ARG "" "SOURCES_FROM" "ROOMS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${ARG_SOURCES_FROM}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_library(${target} SHARED ${sources})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  target_compile_definitions(${target} PRIVATE AT_PER_OPERATOR_HEADERS DANLU_VERSION="${PROJECT_VERSION}")
  danlu_cold(${target})
  danlu_whole_archive(${target} ${ARG_ROOMS})
  target_link_libraries(${target} PRIVATE danlu_core ${TORCH_LIBRARIES})
endfunction()

# src/<room>/*.cpp -> libdanlu_<room>.so, which src/device opens when a device of its kind is asked for. The
# engine is there before it.
function(danlu_device_plugin room)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.cpp)
  add_library(danlu_${room} MODULE ${sources})
  target_include_directories(danlu_${room} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(danlu_${room} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  target_compile_definitions(danlu_${room} PRIVATE AT_PER_OPERATOR_HEADERS)
  danlu_cold(danlu_${room})
  target_link_libraries(danlu_${room} PRIVATE danlu_engine danlu_core ${TORCH_LIBRARIES} ${CMAKE_DL_LIBS})
endfunction()

# Names of the libraries that libtorch needs, the last first and itself at the end, for cli/run_command.cpp.
function(danlu_engine_libraries target)
  set(names "")
  if(TARGET torch_cpu AND CMAKE_READELF)
    get_target_property(torch torch_cpu LOCATION)
    execute_process(COMMAND ${CMAKE_READELF} -dW ${torch} OUTPUT_VARIABLE tags ERROR_QUIET)
    string(REGEX MATCHALL "\\((NEEDED|SONAME)\\)[^\n]*" tags "${tags}")
    foreach(tag ${tags})
      string(REGEX REPLACE ".*: *" "" name ${tag})
      string(REGEX REPLACE "[][]" "\"" name ${name})
      if(tag MATCHES SONAME)
        set(soname "${name}, ")
      else()
        string(PREPEND names "${name}, ")
      endif()
    endforeach()
  endif()
  set(source ${CMAKE_BINARY_DIR}/embedded/cli_engine_libraries.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
namespace danlu::cli {
extern const char* const kEngineLibraries[];
const char* const kEngineLibraries[] = {@names@@soname@nullptr};
}  // namespace danlu::cli
]])
  target_sources(${target} PRIVATE ${source})
endfunction()

# All but main.cpp are a library of objects, so that tests/options can call verbs without starting the program.
function(danlu_program target)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cpp ${CMAKE_SOURCE_DIR}/src/cli/commands/*.cpp)
  set(main ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
  list(REMOVE_ITEM sources ${main})
  if(NOT sources)
    return()
  endif()
  add_library(${target}_verbs OBJECT ${sources})
  add_executable(${target} ${main})
  foreach(part ${target}_verbs ${target})
    target_include_directories(${part} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(${part} PRIVATE DANLU_VERSION="${PROJECT_VERSION}")
    danlu_cold(${part})
  endforeach()
  target_link_libraries(${target}_verbs PUBLIC danlu_core fmt::fmt nlohmann_json::nlohmann_json yaml-cpp ${CMAKE_DL_LIBS})
  target_link_libraries(${target} PRIVATE ${target}_verbs)
  danlu_engine_libraries(${target}_verbs)
  # Finds its libraries beside itself (a build folder) or in lib/danlu of an installation, moved or not.
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib/danlu")
endfunction()
