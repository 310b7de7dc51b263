// ops/cuda/entries.h: what a table of NVIDIA GPUs is filled with, part by part.
#pragma once
#include "ops/backend.h"
#include "ops/cuda/kernels.h"

namespace danlu::ops::cuda {

/// Entries by the kernels of this folder (kernels.h); nothing in a program that was built without
/// nvcc.
void add_kernels(Backend& table);
/// Products of 16-bit numbers into f32 by cuBLAS.
void add_products(Backend& table);
/// Attention of whole sequences by libtorch's FlashAttention, where it takes their types and
/// widths.
void add_flash_attention(Backend& table);

/// The stream on which this thread gives work to a GPU, which must be the current one.
Stream current_stream(const c10::Device& device);

}  // namespace danlu::ops::cuda
