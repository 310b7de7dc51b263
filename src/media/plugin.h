// media/plugin.h: libraries of this room that are opened when they are needed.
#pragma once

namespace danlu::media {

/// The function `symbol` of `library` (libdanlu_….so beside the program), opened once and never
/// closed. `libraries`: what it needs of the system. Errors: DeviceError naming the library, the
/// system's reason and the packages; InternalError.
void* from_media_plugin(const char* library, const char* symbol, const char* libraries);

}  // namespace danlu::media
