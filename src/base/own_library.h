// base/own_library.h: where the libraries lie that Danlu itself opens at run time.
#pragma once
#include <filesystem>
#include <string>

namespace danlu {

/// The path of `file` (e.g. "libdanlu_engine.so") beside the library or program that holds this
/// code: the build folder, or lib/danlu of an installation wherever that was moved to. Whether it
/// exists is for the opener to say. The program finds that library by its own relative run path
/// (cmake/rooms.cmake), so all of them come from one place.
std::filesystem::path own_library(const std::string& file);

}  // namespace danlu
