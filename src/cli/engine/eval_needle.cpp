#include "cli/engine/eval_needle.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "eval/needle/heat_map.h"
#include "eval/needle/needle.h"
#include "eval/needle/needle_score.h"

namespace danlu::cli {
namespace {

/// What counts tokens is asked for before the model is there; it counts when texts are made.
class LaterModel : public eval::Model {
 public:
  void set(const eval::Model& model) { model_ = &model; }
  int64_t count_tokens(const std::string& text) const override {
    return there().count_tokens(text);
  }
  std::string chat_text(const std::vector<text::Message>& messages) const override {
    return there().chat_text(messages);
  }
  bool chat_text_has_bos() const override { return there().chat_text_has_bos(); }
  Json identity() const override { return there().identity(); }
  void answer(const std::vector<eval::Call>&, const OnAnswer&) override {
    throw InternalError("[eval] a model that only counts was asked");
  }

 private:
  const eval::Model& there() const {
    if (!model_) throw InternalError("[eval] the model is not there yet");
    return *model_;
  }
  const eval::Model* model_ = nullptr;
};

class NeedleExam : public Exam {
 public:
  NeedleExam(eval::Task task, std::unique_ptr<LaterModel> model,
             std::shared_ptr<const eval::NeedleData> data, const EvalPlan& plan)
      : Exam(std::move(task)), model_(std::move(model)), source_(data, task_.name), plan_(plan) {
    const std::vector<std::string> of_texts = eval::needle_differences(data->ruler().name());
    task_.differences.insert(task_.differences.begin(), of_texts.begin(), of_texts.end());
  }

  int64_t num_original() const override { return source_.size(); }
  int64_t size() const override { return eval::num_items(source_.size(), plan_.prompts.limit); }

  std::vector<eval::Item> items(int64_t from, const eval::Model& model) override {
    model_->set(model);
    if (from == 0) source_.check_texts();
    constexpr size_t kBytesAtATime = 16u << 20;
    std::vector<eval::Item> items;
    for (size_t bytes = 0; from < size() && bytes < kBytesAtATime; ++from) {
      eval::Item& item = items.emplace_back(source_.item(from));
      eval::Call& call = item.calls[0];
      if (plan_.prompts.apply_chat_template) {
        call.context = model.chat_text(turns_of(call.context));
        call.has_own_bos = model.chat_text_has_bos();
      }
      call.rules = task_.generation;
      bytes += call.context.size();
    }
    return items;
  }

  std::vector<text::Message> turns_of(const std::string& question) const {
    std::vector<text::Message> messages;
    if (plan_.prompts.system_instruction)
      messages.push_back({.role = "system", .content = *plan_.prompts.system_instruction});
    messages.push_back({.role = "user", .content = question});
    return messages;
  }

  void measure(const std::vector<eval::Item>& items,
               const std::vector<std::vector<eval::Answer>>& answers,
               std::vector<std::vector<eval::ItemScore>>& scores) override {
    if (task_.metrics.empty()) return;
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string& text = answers[i][0].text;
      for (eval::ItemScore& score : scores[i])
        score.values["needle_score"] = eval::needle_item_score(items[i].doc, text);
      const std::vector<eval::NeedleCell> cells = eval::needle_cells(items[i].doc, text);
      cells_.insert(cells_.end(), cells.begin(), cells.end());
    }
  }

  void write_pictures(const fs::path& directory, const std::string& stem) override {
    if (cells_.empty()) return;
    const bool chinese = eval::eval_pictures_speak_chinese();
    const eval::HeatMap map = eval::needle_heat_map(task_.name, cells_, chinese);
    const fs::path path = directory / ("heat_map_" + task_.name + "_" + stem);
    write_file_atomic(path.string() + ".svg",
                      eval::heat_map_picture(map, pictures::PictureFormat::kSvg, chinese));
    write_file_atomic(path.string() + ".png",
                      eval::heat_map_picture(map, pictures::PictureFormat::kPng, chinese));
  }

 private:
  std::unique_ptr<LaterModel> model_;
  eval::NeedleSource source_;
  const EvalPlan& plan_;
  std::vector<eval::NeedleCell> cells_;
};

}  // namespace

std::unique_ptr<Exam> make_needle_exam(const Options& options, const eval::Benchmark& benchmark,
                                       eval::Task task, const EvalPlan& plan) {
  auto model = std::make_unique<LaterModel>();
  auto data = std::make_shared<const eval::NeedleData>(
      *benchmark.needle, data_folder_of(options, benchmark),
      options.get_string_or("haystack_tokenizer", ""), model.get());
  return std::make_unique<NeedleExam>(std::move(task), std::move(model), std::move(data), plan);
}

}  // namespace danlu::cli
