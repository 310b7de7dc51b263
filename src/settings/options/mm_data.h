// settings/options/mm_data.h: MindSpeed-MM's data.json (--mm-data) as options of a verb.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/options.h"

namespace danlu::settings {

/// An option of `danlu sft` and the value that a key of data.json gives it.
struct MmDataOption {
  std::string name, value;
  std::string origin;  ///< "data.json: basic_parameters.dataset", for messages
};

/// Every key is an option, needs nothing done, or is refused by name. null says nothing, but for
/// columns under attr, which are not read then. Errors: DataError (no JSON, a value of another
/// type); UsageError (an unknown key, with the nearest; a value of another meaning).
std::vector<MmDataOption> read_mm_data(const std::filesystem::path& path);

/// `options` with those of the data.json that --mm-data names, under the names that the verb has
/// for them (`names`: of sft -> of the verb; "": it has none, and needs none). What the user gave
/// beside it wins. Errors: those of read_mm_data.
Options with_mm_data(const Options& options, const std::map<std::string, std::string>& names);

}  // namespace danlu::settings
