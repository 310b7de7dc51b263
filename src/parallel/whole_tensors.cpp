#include "parallel/whole_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "parallel/agree.h"

namespace danlu::parallel {
namespace {

constexpr int64_t kEnough = -1;
constexpr int64_t kMostPieces = 4;  // a fused matrix has three

/// Pieces as numbers: how many, then row, rows, col, cols of each.
at::Tensor table_of(const std::vector<HeldRect>& rects) {
  if (rects.size() > kMostPieces)
    throw InternalError("[whole tensors] a parameter of more pieces than any has");
  at::Tensor table = at::zeros({1 + 4 * kMostPieces}, at::kLong);
  auto* at = table.data_ptr<int64_t>();
  *at++ = static_cast<int64_t>(rects.size());
  for (const HeldRect& held : rects) {
    for (const int64_t n : {held.rect.row, held.rect.rows, held.rect.col, held.rect.cols})
      *at++ = n;
  }
  return table;
}

/// Lays what one rank holds, elements first to last, into the whole's matrix.
void lay(const int64_t* table, const at::Tensor& elements, const at::Tensor& matrix) {
  int64_t at = 0;
  for (int64_t i = 0; i < table[0]; ++i) {
    const int64_t* rect = table + 1 + 4 * i;
    matrix.narrow(0, rect[0], rect[1])
        .narrow(1, rect[2], rect[3])
        .copy_(elements.narrow(0, at, rect[1] * rect[3]).view({rect[1], rect[3]}));
    at += rect[1] * rect[3];
  }
}

}  // namespace

WholeTensors::WholeTensors(const Mesh& mesh, std::vector<Parameter> parts, ParameterStore* store)
    : groups_(mesh.saving()),
      parts_(std::move(parts)),
      store_(store && store->shares_parameters() ? store : nullptr) {
  try {
    add_experts_of_others(groups_.cutting(mesh.shape().expert_axes()));
    describe_all();
  } catch (...) {
    throw_broken_exchange();
  }
}

void WholeTensors::add_experts_of_others(const Group& owners) {
  if (owners.is_alone()) return;
  Json own = Json::array();
  // What is given into exchanges lies where the others' is.
  const at::Device device = parts_.empty() ? at::Device(at::kCPU) : parts_.front().tensor.device();
  for (const Parameter& part : parts_) {
    if (part.spec.expert < 0 || part.rects.empty()) continue;
    own.push_back({part.name(), part.spec.shape, static_cast<int>(part.tensor.scalar_type()),
                   part.spec.layer, part.spec.expert, static_cast<int>(part.spec.cut)});
  }
  std::vector<Parameter> all;
  std::map<std::string, Parameter> experts;
  for (Parameter& part : parts_) {
    if (part.spec.expert < 0) {
      all.push_back(std::move(part));
    } else if (!part.rects.empty()) {
      experts.emplace(part.name(), std::move(part));
    }
  }
  const std::vector<std::string> said = texts_of_all(owners, dump_text(own));
  std::set<std::string> known;
  for (const std::string& of_rank : said) {
    for (const Json& part : parse_json(of_rank, "the experts of a rank")) {
      const auto name = part[0].get<std::string>();
      if (!known.insert(name).second) continue;  // ranks may cut an expert between them
      if (const auto own_part = experts.find(name); own_part != experts.end()) {
        all.push_back(own_part->second);
        continue;
      }
      Parameter other;
      other.spec.name = name;
      other.spec.shape = part[1].get<std::vector<int64_t>>();
      other.spec.layer = part[3].get<int64_t>();
      other.spec.expert = part[4].get<int64_t>();
      other.spec.cut = static_cast<arch::Cut>(part[5].get<int>());
      other.tensor = at::empty(
          joined_shape(other.spec.shape, {}),
          at::TensorOptions(static_cast<at::ScalarType>(part[2].get<int>())).device(device));
      all.push_back(std::move(other));
    }
  }
  parts_ = std::move(all);
}

void WholeTensors::describe_all() {
  const Group& stages = groups_.pipeline();
  Json own = Json::array();
  for (const Parameter& part : parts_)
    own.push_back({part.name(), part.spec.shape, static_cast<int>(part.tensor.scalar_type()),
                   part.spec.layer});
  std::set<std::string> known;
  for (int64_t stage = 0; stage < stages.size(); ++stage) {
    const Json said = stages.is_alone()
                          ? own
                          : parse_json(text_from(stages, stage, dump_text(own)), "a stage's parts");
    for (size_t index = 0; index < said.size(); ++index) {
      const Json& part = said[index];
      const auto name = part[0].get<std::string>();
      if (known.insert(name).second)
        all_.push_back({name, part[1].get<std::vector<int64_t>>(),
                        static_cast<at::ScalarType>(part[2].get<int>()), stage, index,
                        part[3].get<int64_t>()});
    }
  }
  // The order is nearly that of one rank, although stages may hold layers in turns.
  const auto place = [](const Description& tensor) {
    if (tensor.layer >= 0) return tensor.layer;
    return tensor.stage == 0 ? -1 : std::numeric_limits<int64_t>::max();
  };
  if (stages.is_alone() && holders().is_alone()) return;
  std::stable_sort(all_.begin(), all_.end(),
                   [&](const Description& a, const Description& b) { return place(a) < place(b); });
}

WholeTensors::~WholeTensors() {
  if (is_alone() || !asks() || failed_) return;
  try {
    agree(kEnough);
  } catch (const std::exception& error) {
    log::debug("the other ranks are gone: {}", error.what());
  }
}

int64_t WholeTensors::agree(int64_t number) const {
  at::Tensor said = at::full({1}, number, at::kLong);
  if (leads_stage()) groups_.pipeline().broadcast(said, 0);
  if (store_ && groups_.tensor().rank() == 0) groups_.sharers().broadcast(said, 0);
  (store_ ? groups_.tensor() : holders()).broadcast(said, 0);
  return said.item<int64_t>();
}

at::Tensor WholeTensors::whole(size_t index) const {
  if (is_alone()) return parts_[index].tensor.detach();
  failed_ = true;  // until it has not
  try {
    agree(static_cast<int64_t>(index));
    const at::Tensor whole = fetch(all_[index]);
    failed_ = false;
    return whole;
  } catch (...) {
    throw_broken_exchange();
  }
}

void WholeTensors::serve() const {
  try {
    while (true) {
      const int64_t index = agree(kEnough);
      if (index == kEnough) return;
      fetch(all_[static_cast<size_t>(index)]);
    }
  } catch (...) {
    throw_broken_exchange();
  }
}

at::Tensor WholeTensors::own_part(const Parameter& part) const {
  if (part.quantized) throw InternalError("[whole tensors] " + part.name() + " is quantised");
  const std::optional<size_t> unit = store_ ? store_->unit_of(part.name()) : std::nullopt;
  if (!unit) return part.tensor.detach();
  if (gathered_ != unit) {
    unit_.reset();  // before the next is there
    unit_ = store_->gathered(*unit, groups_);
    gathered_ = unit;
  }
  if (!unit_.defined()) return {};
  const Range range = store_->range_of(*unit, part.name());
  return unit_.narrow(0, range.begin, range.size()).view(part.tensor.sizes());
}

at::Tensor WholeTensors::fetch(const Description& tensor) const {
  const Group& stages = groups_.pipeline();
  at::Tensor whole;
  if (stages.rank() == tensor.stage) whole = gather(tensor.index);
  // The first rank takes it in host memory, where it writes it from.
  if (whole.defined() && tensor.stage > 0) whole = whole.to(at::kCPU);
  if (!leads_stage() || tensor.stage == 0) return whole;
  if (asks()) whole = at::empty(tensor.shape, at::TensorOptions(tensor.dtype));
  stages.pass_on(whole, tensor.stage, 0);
  return whole;
}

at::Tensor WholeTensors::gather(size_t index) const {
  const at::NoGradGuard no_grad;
  const Parameter& part = parts_[index];
  const Group& group = groups_.cutting(part.spec.cut_on().with(arch::Axis::kTensor));
  const at::Tensor own = own_part(part);
  if (groups_.sharers(part.spec.copied_on()).rank() > 0) return {};
  if (group.is_alone()) return own;
  const at::Tensor tables =
      group.all_gather(table_of(part.rects), 0).view({group.size(), -1}).contiguous();
  // The last rank's share of a vocabulary may be smaller.
  at::Tensor largest = at::full({1}, own.numel(), at::kLong);
  group.all_reduce_max(largest);
  at::Tensor mine = at::zeros({largest.item<int64_t>()}, own.options());
  mine.narrow(0, 0, own.numel()).copy_(own.flatten());
  const at::Tensor all = group.gather(mine, 0);
  if (!leads_stage()) return {};
  const at::Tensor whole = at::empty(part.spec.shape, mine.options());
  const arch::Rect matrix = arch::matrix_of(part.spec.shape);
  for (int64_t rank = 0; rank < group.size(); ++rank)
    lay(tables[rank].data_ptr<int64_t>(), all[rank], whole.view({matrix.rows, matrix.cols}));
  return whole;
}

}  // namespace danlu::parallel
