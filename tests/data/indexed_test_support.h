// tests/data/indexed_test_support.h: temporary folders and hand-made indices for the Megatron
// tests.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/megatron/indexed_writer.h"
#include "support/temporary_directory.h"

namespace danlu::data {

using ScratchFolder = test::TemporaryDirectory;

/// Writes one document per sequence.
inline void write_documents(const fs::path& prefix,
                            const std::vector<std::vector<int32_t>>& documents,
                            TokenType type = TokenType::kI32) {
  IndexedWriter writer(prefix, type);
  for (const auto& document : documents) writer.add_document(document);
  writer.commit();
}

/// The message of the error that `call` throws; "" if it throws none or one of another kind.
template <typename ErrorType, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
  }
  return "";
}

}  // namespace danlu::data
