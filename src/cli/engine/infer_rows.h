// cli/engine/infer_rows.h: the questions `danlu infer` answers, from data sets and text files.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/options.h"
#include "data/media_settings.h"
#include "text/conversation.h"

namespace danlu::cli {

/// One thing to answer: a conversation up to the answer, or plain text to complete.
struct Question {
  text::Conversation conversation;  ///< empty for plain text
  std::string plain;                ///< text to complete, or a one-line question
  std::vector<text::TokenId>
      prompt_ids;  ///< a prompt that was tokenised before; the others are empty
  std::optional<std::string> reference;      ///< the data set's own answer
  std::vector<text::TokenId> reference_ids;  ///< the same for tokenised rows
  std::string place;                         ///< file:line
  fs::path folder = {};                      ///< of the row's file: where its pictures may lie
  bool is_blank = false;  ///< an empty line of a text file: it keeps its place, without an answer
};

struct Questions {
  std::vector<Question> rows;
  std::vector<fs::path> files;  ///< what they were read from
};

/// The rows that a run measured itself on, as --load_dataset_config names them. Errors: DataError
/// if it kept none.
std::string held_out_file(const std::string& checkpoint_directory, const Json& run_args);

/// Everything --prompt, --dataset and --load_dataset_config name, in order. A data set's last
/// answer is its reference, and may be missing. Text files give a question for every line. Errors:
/// DataError if nothing usable is found; those of the readers. media: null if the model reads text
/// alone.
Questions read_questions(const Options& options, const Json& run_args,
                         const std::string& checkpoint_directory, const data::MediaSettings* media);

}  // namespace danlu::cli
