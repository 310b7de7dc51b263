// settings/options/model_names.h: from the names people use for models and data sets to paths on
// this machine.
#pragma once
#include <filesystem>
#include <string>

namespace danlu::settings {

/// A directory or file as it is; a short name (model_aliases.inc) or a hub id "org/name" is looked
/// up in the local Hugging Face and ModelScope caches, and fetched where the line asks for that
/// (hub/missing.h). Errors: ModelError saying by which flag it was named, where was looked and what
/// to type; as hub::download.
std::filesystem::path locate_model(const std::string& name, const std::string& flag = "model");

/// The same for a model beside the one that is trained. What is written like a path of this machine
/// (a checkpoint, or below a directory that is there) is looked for here alone. Errors: as
/// locate_model; ModelError naming `flag`.
std::filesystem::path locate_beside(const std::string& name, const std::string& flag);

/// The same for what is there, or is such a name; any other text is returned as it is, for its
/// reader to say what is wrong with it.
std::filesystem::path located_if_named(const std::string& name);

/// Paths, globs, prefixes stay as they are; short names and hub ids of data sets found in the local
/// caches become their directories. Other text is returned as it is (the reader reports it), unless
/// it is a known short name that is not in the caches.
/// Short names whose rows ms-swift rewrites (blossom-math-zh) give a .jsonl made once in
/// `cache_dir`. Errors: DataError saying where was looked.
std::string locate_dataset(const std::string& name, const std::filesystem::path& cache_dir);

}  // namespace danlu::settings
