// base/not_here.h: what this version lacks, in the same words wherever somebody asks for it.
#pragma once
#include "base/error.h"

namespace danlu {

inline constexpr const char* kNoMultimodal = "multimodal models are not part of this version";
inline const Hint kTextOnlyHint = {"Danlu prepares data for, trains, converts and runs text models",
                                   "Danlu 只支持纯文本模型的数据处理、训练、转换与推理"};

inline constexpr const char* kNoReinforcement =
    "this describes reinforcement learning (R1, GRPO, PPO), which is not part of this version: "
    "sampling answers, rewards for them and the update of the policy are missing";
inline const Hint kSftInsteadHint = {
    "to train on the reference answers instead: handler AlpacaStyleInstructionHandler without "
    "dataset_additional_keys, then danlu sft",
    "若改为直接训练参考答案：请使用 AlpacaStyleInstructionHandler 并去掉 "
    "dataset_additional_keys，再运行 danlu sft"};

}  // namespace danlu
