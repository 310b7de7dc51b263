// tests/support/alpaca_line.h: a command line of a guide that several tests read.
#pragma once
#include <string>
#include <vector>

namespace danlu::test {

/// The flags that all three command lines of the Stanford Alpaca guide share.
inline std::vector<std::string> alpaca_line() {
  return {"--fp16",
          "True",
          "--output_dir",
          "/o",
          "--num_train_epochs",
          "1",
          "--per_device_train_batch_size",
          "2",
          "--per_device_eval_batch_size",
          "4",
          "--gradient_accumulation_steps",
          "8",
          "--eval_strategy",
          "no",
          "--save_strategy",
          "steps",
          "--save_steps",
          "2000",
          "--save_total_limit",
          "1",
          "--learning_rate",
          "2e-5",
          "--weight_decay",
          "0.",
          "--warmup_ratio",
          "0.03",
          "--lr_scheduler_type",
          "cosine",
          "--logging_steps",
          "1"};
}

}  // namespace danlu::test
