// settings/options/system_message.h: what --system says, which may stand in a file.
#pragma once
#include <string>

#include "base/options.h"

namespace danlu::settings {

/// The value of --system, or the text of the file or open pipe that it names, as ms-swift reads it,
/// without a byte order mark and with lines that end in \n; a line of the log says so. "": it was
/// not given. Errors: UsageError for what looks like a path and names nothing, for a directory, and
/// for a file that is no text or longer than 1 MiB; IoError for one that cannot be read.
std::string system_message_from(const Options& options);

/// Whether a user who typed it meant a file, which may be gone.
bool names_a_file(const std::string& text);

/// A message as short as ranks can show one another: how long it is, and a hash of it.
std::string short_form(const std::string& system_message);

}  // namespace danlu::settings
