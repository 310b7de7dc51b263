#include "cli/commands/convert_checksums.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "weights/torch/torch_checksums.h"

namespace danlu::cli {

fs::path checksums_file(const fs::path& output) {
  const fs::path named = output.has_filename() ? output : output.parent_path();
  return named.string() + ".checksums";
}

void write_checksums(const weights::ConversionReport& done, const fs::path& output) {
  std::string lines;
  for (const weights::TensorDigest& digest : done.digests)
    lines += fmt::format("{}  {}\n", weights::digest_text(digest.digest), digest.name);
  std::fputs(lines.c_str(), stdout);
  const fs::path file = checksums_file(output);
  write_file_atomic(file, lines);
  log::info("checksums: {}", file.string());
}

void check_checksums(const Options& options, const ConvertRequest& request) {
  const bool checksums = options.get_bool("checksums");
  if (const fs::path file = checksums_file(request.output); fs::exists(file)) {
    if (checksums && !request.overwrite)
      throw UsageError(tr("[--checksums] {} exists", file.string()),
                       tr("choose another name, or give --overwrite"));
    if (!checksums) log::warning("{}: of an earlier result", file.string());
  }
  if (checksums && request.check == false)
    throw UsageError(
        tr("[--checksums] are taken while the result is read back, which {} leaves out",
           options.given_as("check")));
}

}  // namespace danlu::cli
