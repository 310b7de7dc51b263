// settings/options/system_message.h: what --system says, which may stand in a file.
#pragma once
#include <string>

#include "base/options.h"

namespace danlu::settings {

/// The value of --system, or the text of the file that it names, as ms-swift reads it; a notice
/// says so. "": it was not given. Errors: UsageError for one word that ends in .txt and names no
/// file; IoError for a file that cannot be read.
std::string system_message_from(const Options& options);

}  // namespace danlu::settings
