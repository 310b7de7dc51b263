#include "weights/hf/text_part.h"

#include <algorithm>
#include <utility>

#include "arch/text_part.h"
#include "base/log.h"
#include "weights/hf/renamed_source.h"

namespace danlu::weights {

std::shared_ptr<const TensorSource> with_text_part(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   const std::filesystem::path& path) {
  const auto part = arch::text_part_of(config);
  if (!part) return source;
  RenamedSource::Names names;
  bool is_wrapped = false;
  size_t others = 0, ahead = 0;
  for (const TensorInfo& info : source->tensors()) {
    const bool is_other =
        std::any_of(part->others.begin(), part->others.end(),
                    [&](const std::string& begins) { return info.name.starts_with(begins); });
    ahead += info.name.starts_with("mtp.") ? 1 : 0;
    others += is_other ? 1 : 0;
    if (is_other) continue;
    const bool is_text = info.name.starts_with(part->begins);
    is_wrapped |= is_text;
    names.emplace(is_text ? part->instead + info.name.substr(part->begins.size()) : info.name,
                  info.name);
  }
  if (!is_wrapped && others == 0) return source;
  if (others > ahead) {
    log::notice("{}: the text part is read; {} tensors of what sees pictures are left out",
                path.string(), others - ahead);
  }
  if (ahead > 0) {
    log::notice("{}: {} tensors of layers that predict further ahead (mtp) are left out",
                path.string(), ahead);
  }
  return std::make_shared<RenamedSource>(std::move(source), names);
}

}  // namespace danlu::weights
