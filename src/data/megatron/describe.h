// data/megatron/describe.h: what is in an indexed data set, in words for a person.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace danlu::data {

/// Turns ids into text for display; empty: ids only.
using DecodeIds = std::function<std::string(const std::vector<int32_t>&)>;

/// Summary of the index (type, sequences, documents, tokens, length min/mean/max, sizes) and, if
/// `sample` is given, that sequence: ids and text; for instruction data also the label mask.
/// `prefix` may be an indexed data set (with or without .idx/.bin) or the prefix of an instruction
/// data set. Works without the .bin, except for `sample`. Lines end in '\n'.
/// Errors: IoError, DataError as IndexedDataset; UsageError if `sample` is out of range.
std::string describe_dataset(const std::string& prefix,
                             std::optional<int64_t> sample = std::nullopt,
                             const DecodeIds& decode = {});

}  // namespace danlu::data
