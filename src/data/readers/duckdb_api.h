// data/readers/duckdb_api.h: DuckDB, opened when the first row is read, and streamed queries on it.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace danlu::data {

/// Where libduckdb.so was found and its version, e.g. "v1.4.4 (/usr/lib/libduckdb.so)". Opens it.
/// Errors: IoError listing the places searched.
std::string duckdb_description();

/// An in-memory DuckDB database with one connection. Not thread-safe; several objects are
/// independent.
class DuckDb {
 public:
  /// Opens libduckdb.so: DANLU_DUCKDB (a file), the one beside Danlu's own libraries
  /// (base/own_library.h; in a build folder a link, cmake/dependencies.cmake), the system's.
  /// Errors: IoError listing the places searched.
  DuckDb();
  ~DuckDb();
  DuckDb(const DuckDb&) = delete;
  DuckDb& operator=(const DuckDb&) = delete;

  /// Runs `sql` and streams its rows: memory does not grow with the result.
  /// Errors: QueryError with DuckDB's text, here or from RowStream::next.
  class RowStream;
  std::unique_ptr<RowStream> stream(const std::string& sql);
  /// The single integer that `sql` yields. Errors: QueryError.
  int64_t query_int(const std::string& sql);

  struct QueryError {
    std::string message;
  };

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Rows of a query whose first column is text (VARCHAR or JSON).
class DuckDb::RowStream {
 public:
  ~RowStream();
  /// The next row's text, valid until the next call; a null value is an empty view with a null
  /// data(). False at the end. Errors: QueryError.
  bool next(std::string_view* text);

 private:
  friend class DuckDb;
  struct State;
  explicit RowStream(std::unique_ptr<State> state);
  bool next_chunk();
  std::unique_ptr<State> state_;
};

/// `text` as an SQL string literal.
std::string sql_quote(std::string_view text);
/// A path as an SQL literal that DuckDB does not take for a glob.
std::string sql_path(std::string_view path);

}  // namespace danlu::data
