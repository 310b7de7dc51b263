// cli/commands/convert_checksums.h: `danlu convert --checksums`: one line for each tensor, to be
// compared later.
#pragma once
#include <filesystem>

#include "base/options.h"
#include "cli/commands/convert_request.h"
#include "weights/convert/conversion.h"

namespace danlu::cli {

/// OUTPUT.checksums.
std::filesystem::path checksums_file(const std::filesystem::path& output);

/// On standard output, and in that file. Errors: IoError.
void write_checksums(const weights::ConversionReport& done, const std::filesystem::path& output);

/// Before anything is converted: what --checksums asks for can be had, and nobody's file is
/// replaced. Errors: UsageError.
void check_checksums(const Options& options, const ConvertRequest& request);

}  // namespace danlu::cli
