#include "base/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <regex>

#include "base/error.h"
#include "base/file.h"
#include "base/in_english.h"
#include "base/json.h"
#include "base/options.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

bool has_english_words(const std::string& text) {
  static const std::regex words("[A-Za-z]{2,} [a-z]{2,}");
  return std::regex_search(text, words);
}

class InChinese : public testing::Test {
 protected:
  InChinese() { ::setenv("DANLU_LANG", "zh", 1); }
  ~InChinese() override { ::unsetenv("DANLU_LANG"); }
};

TEST_F(InChinese, WhatTheSystemSaysOfFilesIsTranslated) {
  for (const int code :
       {EPERM,     ENOENT,  EINTR,  EIO,        ENOEXEC,      EAGAIN, ENOMEM, EACCES,
        EBUSY,     EEXIST,  EXDEV,  ENODEV,     ENOTDIR,      EISDIR, EINVAL, ENFILE,
        EMFILE,    ETXTBSY, EFBIG,  ENOSPC,     EROFS,        EMLINK, EPIPE,  ENAMETOOLONG,
        ENOTEMPTY, ELOOP,   ENOLCK, EOPNOTSUPP, ECONNREFUSED, ESTALE, EDQUOT}) {
    const std::string said = tr("{}: cannot write: {}", "a/b", std::strerror(code));
    EXPECT_FALSE(has_english_words(said)) << said;
    EXPECT_THAT(said, testing::StartsWith("a/b"));
  }
}

TEST_F(InChinese, WhatTheJsonLibrarySaysIsTranslated) {
  for (const char* broken : {"[1, 2",    "{x",       "{\"a\" 1}", "{\"a\": }",   "[1 2]",
                             "oops",     "[-]",      "[1.]",      "[1e]",        "[1e+]",
                             "\"open",   "\"\\q\"",  "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"",
                             "\"a\nb\"", "\"\xff\"", "[1] x",     "{\"a\":1,}",  "[1e400]",
                             "[tru]",    "",         "\xEF\xBB",  "{1: 2}",      "[true false]"}) {
    try {
      parse_json(broken, "a.json");
      ADD_FAILURE() << broken;
    } catch (const DataError& e) {
      EXPECT_FALSE(has_english_words(e.what())) << broken << ": " << e.what();
    }
  }
}

TEST_F(InChinese, WhatTheYamlLibrarySaysIsTranslated) {
  const test::TemporaryDirectory directory;
  const OptionTable table("test", "", "", {{.name = "model", .help = ""}});
  for (const char* broken : {"a: [1, 2", "a: {b: 1", "a: 'open", "a: b: c", "a:\n\t- 1", "*nobody",
                             "a: ]", "? a\n  b: - c", "a: \"\\q\"", "%YAML 9.9\n---\na: 1",
                             "a: &x &y 1", "a: |0\n b", "a: !<x"}) {
    write_file_atomic(directory / "a.yaml", broken);
    try {
      table.parse({(directory / "a.yaml").string()}, true);
      ADD_FAILURE() << broken;
    } catch (const UsageError& e) {
      EXPECT_FALSE(has_english_words(e.what())) << broken << ": " << e.what();
    }
  }
}

TEST_F(InChinese, TheTextThatExplainsMostIsTaken) {
  EXPECT_EQ(translated_filled("'x y' is undefined"), "'x y' 未定义");
  EXPECT_EQ(translated_filled("a.jinja:3: expected an expression, got the end of the template"),
            "a.jinja:3: 此处应为表达式，实际为 模板的结尾");
}

// As libcurl 7.88 and 8 say it.
TEST_F(InChinese, WordsOfLibcurlAreTranslated) {
  EXPECT_EQ(translated_filled("Could not resolve host: huggingface.co"),
            "无法解析主机名：huggingface.co");
  EXPECT_EQ(translated_filled("Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect "
                              "to server"),
            "0 毫秒后仍无法连接 127.0.0.1 的端口 9：无法连接服务器");
  for (const char* words :
       {"Failed to connect to 127.0.0.1 port 9 after 0 ms: Connection refused",
        "Operation timed out after 30001 milliseconds with 12 out of 400 bytes received",
        "Operation too slow. Less than 1 bytes/sec transferred the last 60 seconds",
        "SSL certificate problem: unable to get local issuer certificate",
        "Recv failure: Connection reset by peer", "Empty reply from server",
        "transfer closed with 17 bytes remaining to read", "end of response with 17 bytes missing",
        "CONNECT tunnel failed, response 403"}) {
    EXPECT_FALSE(has_english_words(translated_filled(words))) << translated_filled(words);
  }
}

TEST_F(InChinese, AFilledTextIsTheTranslationFilledWithTheSameWords) {
  std::string stored;
  {
    const InEnglish storing;
    stored = tr("\"{}\" must be {}, got {}", "the key", "a string", "[1, 2]");
  }
  EXPECT_FALSE(std::string(stored).empty());
  EXPECT_EQ(translated_filled(stored),
            tr("\"{}\" must be {}, got {}", "the key", "a string", "[1, 2]"));
  EXPECT_EQ(translated_filled("zzz qqq"), "zzz qqq");
  EXPECT_EQ(translated_filled("end of input"), in_chinese("end of input"));
  const InEnglish storing;
  EXPECT_EQ(translated_filled(stored), stored);
}

}  // namespace
}  // namespace danlu
