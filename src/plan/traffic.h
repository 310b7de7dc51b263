// plan/traffic.h: what a rank sends in a step, in bytes of payload.
#pragma once
#include "plan/memory.h"

namespace danlu::plan {

/// Sent by one rank in a step, by axis.
struct Traffic {
  double data = 0, tensor = 0;
  double replicas = 0;          ///< of data: between ranks of equal shares
  double pipeline = 0;          ///< messages, and between its ends a tied table's gradients
  double tied = 0;              ///< these gradients alone
  double context = 0;           ///< and of the context axis
  double context_forward = 0;   ///< of one layer and micro-batch
  double context_backward = 0;  ///< what it recomputes apart
  double context_keys = 0;      ///< of each of these: a ring's keys and values
  double expert = 0;            ///< rows to and from the owners of their experts, on average
  double expert_forward = 0;    ///< of one layer and micro-batch
  double expert_backward = 0;   ///< what is made again apart
  /// The same of one forward or one backward, on the tensor axis: rows that neighbours share.
  double expert_gathered = 0;
  double tensor_of_layer = 0;  ///< of one layer, forward and backward of a micro-batch
  double tensor_of_tower = 0;  ///< of a vision tower's part, likewise
  double message = 0;          ///< to the next stage, of one micro-batch
};
/// The bytes of a rank of either end of the pipeline for the sum of a tied table's gradients.
double tied_bytes(const Request& request, const Elements& elements);
Traffic traffic_of(const Request& request, const arch::Stage& stage);
/// The same of a stage whose elements are known.
Traffic traffic_of(const Request& request, const arch::Stage& stage, const Elements& elements);

}  // namespace danlu::plan
