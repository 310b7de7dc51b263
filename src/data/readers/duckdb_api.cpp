#include "data/readers/duckdb_api.h"

#include <dlfcn.h>
#include <duckdb.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/own_library.h"

namespace danlu::data {
namespace {

// The C functions in use. decltype keeps them in step with the header.
// clang-format off
#define DANLU_DUCKDB_FUNCTIONS(X) \
  X(duckdb_library_version) \
  X(duckdb_open) \
  X(duckdb_close) \
  X(duckdb_connect) \
  X(duckdb_disconnect) \
  X(duckdb_query) \
  X(duckdb_prepare) \
  X(duckdb_prepare_error) \
  X(duckdb_destroy_prepare) \
  X(duckdb_pending_prepared_streaming) \
  X(duckdb_pending_error) \
  X(duckdb_execute_pending) \
  X(duckdb_destroy_pending) \
  X(duckdb_result_error) \
  X(duckdb_destroy_result) \
  X(duckdb_fetch_chunk) \
  X(duckdb_destroy_data_chunk) \
  X(duckdb_data_chunk_get_size) \
  X(duckdb_data_chunk_get_vector) \
  X(duckdb_vector_get_data) \
  X(duckdb_vector_get_validity) \
  X(duckdb_validity_row_is_valid) \
  X(duckdb_value_int64)
// clang-format on

struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name cannot be in parentheses
#define DANLU_MEMBER(name) decltype(&::name) name = nullptr;
  DANLU_DUCKDB_FUNCTIONS(DANLU_MEMBER)
#undef DANLU_MEMBER
  std::string path;
};

std::vector<std::string> library_candidates() {
  if (const char* set = std::getenv("DANLU_DUCKDB"); set && *set) return {set};
  return {own_library("libduckdb.so"), "libduckdb.so"};
}

void* open_library(std::string* path) {
  std::string searched;
  for (const std::string& candidate : library_candidates()) {
    const bool is_path = candidate.find('/') != std::string::npos;
    if (is_path && !fs::exists(candidate)) {
      searched += "\n  " + candidate;
      continue;
    }
    if (void* handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      *path = candidate;
      return handle;
    }
    searched += fmt::format("\n  {} ({})", candidate, ::dlerror());
  }
  throw IoError(tr("libduckdb.so, which reads data files, was not found; searched:{}", searched),
                tr("run `make deps`, or set DANLU_DUCKDB to the library's file"));
}

const Api& api() {
  static const Api loaded = [] {
    Api result;
    void* handle = open_library(&result.path);
#define DANLU_LOAD(name)                                                                \
  result.name = reinterpret_cast<decltype(result.name)>(::dlsym(handle, #name));        \
  if (!result.name) {                                                                   \
    throw IoError(result.path + ": this DuckDB is too old, it has no function " #name); \
  }
    DANLU_DUCKDB_FUNCTIONS(DANLU_LOAD)
#undef DANLU_LOAD
    return result;
  }();
  return loaded;
}

}  // namespace

std::string duckdb_description() {
  return fmt::format("{} ({})", api().duckdb_library_version(), api().path);
}

struct DuckDb::State {
  duckdb_database database = nullptr;
  duckdb_connection connection = nullptr;
};

DuckDb::DuckDb() : state_(std::make_unique<State>()) {
  if (api().duckdb_open(nullptr, &state_->database) != DuckDBSuccess ||
      api().duckdb_connect(state_->database, &state_->connection) != DuckDBSuccess) {
    throw InternalError("DuckDB cannot open an in-memory database");
  }
}

DuckDb::~DuckDb() {
  // DuckDB's workers end here. Were they ended by closing, one that has just finished a task of a
  // query that failed could still be about to lock what belongs to the connection, which is gone by
  // then (seen in 1.x: the close waits for ever).
  api().duckdb_query(state_->connection, "SET threads = 1", nullptr);
  api().duckdb_disconnect(&state_->connection);
  api().duckdb_close(&state_->database);
}

int64_t DuckDb::query_int(const std::string& sql) {
  duckdb_result result;
  const auto state = api().duckdb_query(state_->connection, sql.c_str(), &result);
  const char* error = state == DuckDBSuccess ? nullptr : api().duckdb_result_error(&result);
  const std::string message = error ? error : "";
  const int64_t value = state == DuckDBSuccess ? api().duckdb_value_int64(&result, 0, 0) : 0;
  api().duckdb_destroy_result(&result);
  if (state != DuckDBSuccess) throw QueryError{message};
  return value;
}

struct DuckDb::RowStream::State {
  duckdb_prepared_statement statement = nullptr;
  duckdb_result result{};
  bool has_result = false;
  duckdb_data_chunk chunk = nullptr;  ///< some 2,000 rows, of which `row` are behind us
  idx_t row = 0, num_rows = 0;
  ~State() {
    if (chunk) api().duckdb_destroy_data_chunk(&chunk);
    if (has_result) api().duckdb_destroy_result(&result);
    if (statement) api().duckdb_destroy_prepare(&statement);
  }
};

std::unique_ptr<DuckDb::RowStream> DuckDb::stream(const std::string& sql) {
  auto state = std::make_unique<RowStream::State>();
  if (api().duckdb_prepare(state_->connection, sql.c_str(), &state->statement) != DuckDBSuccess) {
    throw QueryError{api().duckdb_prepare_error(state->statement)};
  }
  duckdb_pending_result pending = nullptr;
  if (api().duckdb_pending_prepared_streaming(state->statement, &pending) != DuckDBSuccess) {
    const QueryError error{api().duckdb_pending_error(pending)};
    api().duckdb_destroy_pending(&pending);
    throw error;
  }
  const auto executed = api().duckdb_execute_pending(pending, &state->result);
  state->has_result = true;
  api().duckdb_destroy_pending(&pending);
  if (executed != DuckDBSuccess) throw QueryError{api().duckdb_result_error(&state->result)};
  return std::unique_ptr<RowStream>(new RowStream(std::move(state)));
}

DuckDb::RowStream::RowStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
DuckDb::RowStream::~RowStream() = default;

bool DuckDb::RowStream::next_chunk() {
  State& s = *state_;
  if (s.chunk) api().duckdb_destroy_data_chunk(&s.chunk);
  s.row = s.num_rows = 0;
  s.chunk = api().duckdb_fetch_chunk(s.result);
  if (!s.chunk) {
    const char* error = api().duckdb_result_error(&s.result);
    if (error && *error) throw QueryError{error};
    return false;
  }
  s.num_rows = api().duckdb_data_chunk_get_size(s.chunk);
  return s.num_rows > 0;
}

bool DuckDb::RowStream::next(std::string_view* text) {
  State& s = *state_;
  if (s.row == s.num_rows && !next_chunk()) return false;
  const idx_t row = s.row++;
  const duckdb_vector column = api().duckdb_data_chunk_get_vector(s.chunk, 0);
  uint64_t* validity = api().duckdb_vector_get_validity(column);
  if (validity && !api().duckdb_validity_row_is_valid(validity, row)) {
    *text = {};
    return true;
  }
  // Short strings are stored in place of the pointer (duckdb.h, duckdb_string_t).
  const auto* values = static_cast<const duckdb_string_t*>(api().duckdb_vector_get_data(column));
  const duckdb_string_t& value = values[row];
  const uint32_t length = value.value.inlined.length;
  *text = {length <= sizeof value.value.inlined.inlined ? value.value.inlined.inlined
                                                        : value.value.pointer.ptr,
           length};
  return true;
}

std::string sql_quote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') quoted += '\'';
    quoted += c;
  }
  return quoted + "'";
}

std::string sql_path(std::string_view path) {
  std::string escaped;
  for (const char c : path) {
    if (c == '*' || c == '?' || c == '[') {
      escaped += fmt::format("[{}]", c);
    } else {
      escaped += c;
    }
  }
  return sql_quote(escaped);
}

}  // namespace danlu::data
