#include "cli/engine/served_engine.h"

#include <utility>
#include <vector>

#include "base/error.h"

namespace danlu::cli {

class EngineMaker::Served final : public serve::StepEngine {
  template <typename Work>
  auto or_all_end(const Work& work) {
    if (!maker_.followers_) return work();
    try {
      return maker_.ranks_.do_or_give_up([&] {
        try {
          return work();
        } catch (const CommError&) {
          if (maker_.on_loss_) maker_.on_loss_();
          throw;
        }
      });
    } catch (...) {
      maker_.lost_ = std::current_exception();
      throw;
    }
  }

 public:
  explicit Served(EngineMaker& maker)
      : maker_(maker), engine_(maker.model_, maker.settings_, maker.followers_) {}

  infer::RequestHandle add(infer::EngineRequest request) override {
    return engine_.add(std::move(request));
  }
  void cancel(infer::RequestHandle handle) override {
    or_all_end([&] { engine_.cancel(handle); });
  }
  bool has_work() const override { return engine_.has_work(); }
  std::vector<infer::EngineOutput> step() override {
    return or_all_end([&] { return engine_.step(); });
  }
  std::vector<infer::RequestHandle> begun() const override { return engine_.begun(); }
  infer::EngineCounts counts() const override { return engine_.counts(); }
  infer::EngineSettings settings() const override { return engine_.settings(); }

 private:
  EngineMaker& maker_;
  infer::Engine engine_;
};

std::unique_ptr<serve::StepEngine> EngineMaker::make() {
  if (lost_) std::rethrow_exception(lost_);
  return std::make_unique<Served>(*this);
}

}  // namespace danlu::cli
