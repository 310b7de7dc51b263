// The operators of libopapi that the simulator exports. Each is two functions:
// `<name>GetWorkspaceSize` with the arguments below and the two that all have, and
// `<name>(workspace, workspaceSize, executor, stream)`.
#pragma once

#include "aclnn_api.h"

#define NPU_SIM_OP(name, ...)                                                        \
  aclnnStatus name##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspaceSize,           \
                                     aclOpExecutor** executor);                      \
  aclnnStatus name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, \
                   aclrtStream stream)

extern "C" {
// Copies, casts, fills.
NPU_SIM_OP(aclnnCast, const aclTensor* self, const aclDataType dtype, aclTensor* out);
NPU_SIM_OP(aclnnInplaceCopy, aclTensor* selfRef, const aclTensor* src);
NPU_SIM_OP(aclnnInplaceFillScalar, aclTensor* selfRef, const aclScalar* value);
NPU_SIM_OP(aclnnInplaceZero, aclTensor* selfRef);
NPU_SIM_OP(aclnnArange, const aclScalar* start, const aclScalar* end, const aclScalar* step,
           aclTensor* out);
NPU_SIM_OP(aclnnCat, const aclTensorList* tensors, int64_t dim, aclTensor* out);
NPU_SIM_OP(aclnnPermute, const aclTensor* self, const aclIntArray* dims, aclTensor* out);

// Elementwise.
NPU_SIM_OP(aclnnAdd, const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
           aclTensor* out);
NPU_SIM_OP(aclnnInplaceAdd, aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha);
NPU_SIM_OP(aclnnSub, const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
           aclTensor* out);
NPU_SIM_OP(aclnnInplaceSub, aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha);
NPU_SIM_OP(aclnnMul, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnInplaceMul, aclTensor* selfRef, const aclTensor* other);
NPU_SIM_OP(aclnnDiv, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnInplaceDiv, aclTensor* selfRef, const aclTensor* other);
NPU_SIM_OP(aclnnMaximum, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnMinimum, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnAdds, const aclTensor* self, const aclScalar* other, const aclScalar* alpha,
           aclTensor* out);
NPU_SIM_OP(aclnnInplaceAdds, aclTensor* selfRef, const aclScalar* other, const aclScalar* alpha);
NPU_SIM_OP(aclnnMuls, const aclTensor* self, const aclScalar* other, aclTensor* out);
NPU_SIM_OP(aclnnInplaceMuls, aclTensor* selfRef, const aclScalar* other);
NPU_SIM_OP(aclnnExp, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnLog, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnRsqrt, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnSqrt, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnNeg, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnSin, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnCos, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnSigmoid, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnTanh, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnSilu, const aclTensor* self, aclTensor* out);
NPU_SIM_OP(aclnnInplaceExp, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceLog, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceRsqrt, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceSqrt, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceNeg, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceSin, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceCos, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceSigmoid, aclTensor* selfRef);
NPU_SIM_OP(aclnnInplaceTanh, aclTensor* selfRef);
NPU_SIM_OP(aclnnSiluBackward, const aclTensor* gradOutput, const aclTensor* self,
           aclTensor* gradInput);
NPU_SIM_OP(aclnnGeluV2, const aclTensor* x, int64_t approximate, aclTensor* y);
NPU_SIM_OP(aclnnGeluBackwardV2, const aclTensor* gradOutput, const aclTensor* self,
           char* approximate, aclTensor* gradInput);
NPU_SIM_OP(aclnnSWhere, const aclTensor* condition, const aclTensor* self, const aclTensor* other,
           aclTensor* out);
NPU_SIM_OP(aclnnEqScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
NPU_SIM_OP(aclnnNeScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
NPU_SIM_OP(aclnnGeScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
NPU_SIM_OP(aclnnGtScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
NPU_SIM_OP(aclnnLeScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
NPU_SIM_OP(aclnnLtScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
NPU_SIM_OP(aclnnEqTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnNeTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnGeTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnGtTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnLeTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnLtTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
NPU_SIM_OP(aclnnInplaceMaskedFillScalar, aclTensor* selfRef, const aclTensor* mask,
           const aclScalar* value);
NPU_SIM_OP(aclnnIsFinite, const aclTensor* self, aclTensor* out);

// Reductions, sorting.
NPU_SIM_OP(aclnnReduceSum, const aclTensor* self, const aclIntArray* dims, bool keepDims,
           aclDataType dtype, aclTensor* out);
NPU_SIM_OP(aclnnMean, const aclTensor* self, const aclIntArray* dims, bool keepDims,
           aclDataType dtype, aclTensor* out);
NPU_SIM_OP(aclnnAmax, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out);
NPU_SIM_OP(aclnnLogSumExp, const aclTensor* self, const aclIntArray* dim, bool keepDim,
           aclTensor* out);
NPU_SIM_OP(aclnnMaxDim, const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out,
           aclTensor* indices);
NPU_SIM_OP(aclnnAll, const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out);
NPU_SIM_OP(aclnnNorm, const aclTensor* self, const aclScalar* p, const aclIntArray* dim,
           bool keepdim, aclTensor* out);
NPU_SIM_OP(aclnnLinalgVectorNorm, const aclTensor* self, const aclScalar* p, const aclIntArray* dim,
           bool keepdim, const aclDataType dtype, aclTensor* out);
NPU_SIM_OP(aclnnCumsum, const aclTensor* self, int64_t dim, aclDataType dtype, aclTensor* out);
NPU_SIM_OP(aclnnTopk, const aclTensor* self, int64_t k, int64_t dim, bool largest, bool sorted,
           aclTensor* valuesOut, aclTensor* indicesOut);
NPU_SIM_OP(aclnnSort, const aclTensor* self, bool stable, int64_t dim, bool descending,
           aclTensor* values, aclTensor* indices);
NPU_SIM_OP(aclnnArgsort, const aclTensor* self, int64_t dim, bool descending, aclTensor* out);

// Matrix products.
NPU_SIM_OP(aclnnMm, const aclTensor* self, const aclTensor* mat2, aclTensor* out,
           int8_t cubeMathType);
NPU_SIM_OP(aclnnMatmul, const aclTensor* self, const aclTensor* mat2, aclTensor* out,
           int8_t cubeMathType);
NPU_SIM_OP(aclnnBatchMatMul, const aclTensor* self, const aclTensor* mat2, aclTensor* out,
           int8_t cubeMathType);
NPU_SIM_OP(aclnnAddmm, const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2,
           const aclScalar* beta, const aclScalar* alpha, aclTensor* out, int8_t cubeMathType);
NPU_SIM_OP(aclnnInplaceAddmm, const aclTensor* selfRef, const aclTensor* mat1,
           const aclTensor* mat2, const aclScalar* beta, const aclScalar* alpha,
           int8_t cubeMathType);
NPU_SIM_OP(aclnnBaddbmm, const aclTensor* self, const aclTensor* batch1, const aclTensor* batch2,
           const aclScalar* beta, const aclScalar* alpha, aclTensor* out, int8_t cubeMathType);
NPU_SIM_OP(aclnnInplaceBaddbmm, const aclTensor* selfRef, const aclTensor* batch1,
           const aclTensor* batch2, const aclScalar* beta, const aclScalar* alpha,
           int8_t cubeMathType);
NPU_SIM_OP(aclnnGroupedMatmulV4, const aclTensorList* x, const aclTensorList* weight,
           const aclTensorList* biasOptional, const aclTensorList* scaleOptional,
           const aclTensorList* offsetOptional, const aclTensorList* antiquantScaleOptional,
           const aclTensorList* antiquantOffsetOptional, const aclTensorList* perTokenScaleOptional,
           const aclTensor* groupListOptional, const aclTensorList* activationInputOptional,
           const aclTensorList* activationQuantScaleOptional,
           const aclTensorList* activationQuantOffsetOptional, int64_t splitItem, int64_t groupType,
           int64_t groupListType, int64_t actType, aclTensorList* out,
           aclTensorList* activationFeatureOutOptional, aclTensorList* dynQuantScaleOutOptional);
NPU_SIM_OP(aclnnGroupedMatmulV3, const aclTensorList* x, const aclTensorList* weight,
           const aclTensorList* bias, const aclTensorList* scale, const aclTensorList* offset,
           const aclTensorList* antiquantScale, const aclTensorList* antiquantOffset,
           const aclTensor* groupListOptional, int64_t splitItem, int64_t groupType,
           const aclTensorList* y);
NPU_SIM_OP(aclnnGroupedMatmulAdd, const aclTensor* x, const aclTensor* weight,
           const aclTensor* groupList, aclTensor* yRef, bool transposeX, bool transposeWeight,
           int64_t groupType);

// Norms, activations, rotary.
NPU_SIM_OP(aclnnRmsNorm, const aclTensor* x, const aclTensor* gamma, double epsilon,
           const aclTensor* yOut, const aclTensor* rstdOut);
NPU_SIM_OP(aclnnRmsNormGrad, const aclTensor* dy, const aclTensor* x, const aclTensor* rstd,
           const aclTensor* gamma, const aclTensor* dxOut, const aclTensor* dgammaOut);
NPU_SIM_OP(aclnnAddRmsNorm, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
           double epsilon, const aclTensor* yOut, const aclTensor* rstdOut, const aclTensor* xOut);
NPU_SIM_OP(aclnnLayerNorm, const aclTensor* input, const aclIntArray* normalizedShape,
           const aclTensor* weightOptional, const aclTensor* biasOptional, double eps,
           aclTensor* out, aclTensor* meanOutOptional, aclTensor* rstdOutOptional);
NPU_SIM_OP(aclnnLayerNormBackward, const aclTensor* gradOut, const aclTensor* input,
           const aclIntArray* normalizedShape, const aclTensor* mean, const aclTensor* rstd,
           const aclTensor* weightOptional, const aclTensor* biasOptional,
           const aclBoolArray* outputMask, aclTensor* gradInputOut, aclTensor* gradWeightOut,
           aclTensor* gradBiasOut);
NPU_SIM_OP(aclnnSwiGlu, const aclTensor* x, int64_t dim, const aclTensor* out);
NPU_SIM_OP(aclnnSwiGluGrad, const aclTensor* yGrad, const aclTensor* x, int64_t dim,
           const aclTensor* out);
NPU_SIM_OP(aclnnRotaryPositionEmbedding, const aclTensor* x, const aclTensor* cos,
           const aclTensor* sin, int64_t mode, const aclTensor* out);
NPU_SIM_OP(aclnnRotaryPositionEmbeddingGrad, const aclTensor* dy, const aclTensor* cos,
           const aclTensor* sin, const aclTensor* xOptional, int64_t mode, const aclTensor* dxOut,
           const aclTensor* dcosOut, const aclTensor* dsinOut);
NPU_SIM_OP(aclnnApplyRotaryPosEmb, aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
           const aclTensor* sin, int64_t layout);

// Softmax and losses.
NPU_SIM_OP(aclnnSoftmax, const aclTensor* self, int64_t dim, aclTensor* out);
NPU_SIM_OP(aclnnLogSoftmax, const aclTensor* self, int64_t dim, aclTensor* out);
NPU_SIM_OP(aclnnSoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
           aclTensor* out);
NPU_SIM_OP(aclnnLogSoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output,
           int64_t dim, aclTensor* out);
NPU_SIM_OP(aclnnNLLLoss, const aclTensor* self, const aclTensor* target, const aclTensor* weight,
           int64_t reduction, int64_t ignoreIndex, aclTensor* out, aclTensor* totalWeightOut);
NPU_SIM_OP(aclnnNLLLossBackward, const aclTensor* gradOutput, const aclTensor* self,
           const aclTensor* target, const aclTensor* weight, int64_t reduction, int64_t ignoreIndex,
           const aclTensor* totalWeight, aclTensor* out);
NPU_SIM_OP(aclnnCrossEntropyLoss, const aclTensor* input, const aclTensor* target,
           const aclTensor* weightOptional, char* reductionOptional, int64_t ignoreIndex,
           double labelSmoothing, double lseSquareScaleForZloss, bool returnZloss,
           const aclTensor* lossOut, const aclTensor* logProbOut, const aclTensor* zlossOut,
           const aclTensor* lseForZlossOut);
NPU_SIM_OP(aclnnCrossEntropyLossGrad, const aclTensor* gradLoss, const aclTensor* logProb,
           const aclTensor* target, const aclTensor* weightOptional,
           const aclTensor* gradZlossOptional, const aclTensor* lseForZlossOptional,
           char* reductionOptional, int64_t ignoreIndex, double labelSmoothing,
           double lseSquareScaleForZloss, const aclTensor* out);

// Tables and indices.
NPU_SIM_OP(aclnnEmbedding, const aclTensor* weight, const aclTensor* indices, const aclTensor* out);
NPU_SIM_OP(aclnnEmbeddingDenseBackward, const aclTensor* grad, const aclTensor* indices,
           uint64_t numWeights, uint64_t paddingIdx, bool scaleGradByFreq, const aclTensor* out);
NPU_SIM_OP(aclnnIndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index,
           aclTensor* out);
NPU_SIM_OP(aclnnIndexAdd, const aclTensor* self, const int64_t dim, const aclTensor* index,
           const aclTensor* source, const aclScalar* alpha, aclTensor* out);
NPU_SIM_OP(aclnnScatterAdd, const aclTensor* self, int64_t dim, const aclTensor* index,
           const aclTensor* src, aclTensor* out);
NPU_SIM_OP(aclnnGather, const aclTensor* self, const int64_t dim, const aclTensor* index,
           aclTensor* out);
NPU_SIM_OP(aclnnGatherV2, const aclTensor* self, int64_t dim, const aclTensor* index,
           aclTensor* out);
NPU_SIM_OP(aclnnInplaceIndexCopy, aclTensor* selfRef, int64_t dim, const aclTensor* index,
           const aclTensor* source);

// Dropout and random numbers.
NPU_SIM_OP(aclnnDropout, const aclTensor* input, double p, bool train, int64_t seed, int64_t offset,
           aclTensor* out, aclTensor* maskOut);
NPU_SIM_OP(aclnnDropoutBackward, const aclTensor* gradOutput, const aclTensor* mask, double scale,
           aclTensor* out);
NPU_SIM_OP(aclnnDropoutGenMask, const aclIntArray* shape, double prob, int64_t seed, int64_t offset,
           aclTensor* out);
NPU_SIM_OP(aclnnDropoutGenMaskV2, const aclIntArray* shape, double prob, int64_t seed,
           int64_t offset, aclDataType probDataType, aclTensor* out);
NPU_SIM_OP(aclnnDropoutDoMask, const aclTensor* self, const aclTensor* mask, double prob,
           aclTensor* out);
NPU_SIM_OP(aclnnInplaceNormal, const aclTensor* selfRef, float mean, float std, int64_t seed,
           int64_t offset);
NPU_SIM_OP(aclnnInplaceUniform, const aclTensor* selfRef, double from, double to, uint64_t seed,
           uint64_t offset);

// Optimizer.
NPU_SIM_OP(aclnnApplyAdamWV2, aclTensor* varRef, aclTensor* mRef, aclTensor* vRef,
           aclTensor* maxGradNormOptionalRef, const aclTensor* grad, const aclTensor* step,
           float lr, float beta1, float beta2, float weightDecay, float eps, bool amsgrad,
           bool maximize);
NPU_SIM_OP(aclnnForeachNorm, const aclTensorList* x, const aclScalar* p, const aclTensorList* out);
NPU_SIM_OP(aclnnForeachMulScalar, const aclTensorList* x, const aclTensor* scalar,
           aclTensorList* out);
NPU_SIM_OP(aclnnForeachMulScalarV2, const aclTensorList* x, const aclScalar* scalar,
           aclTensorList* out);
NPU_SIM_OP(aclnnForeachNonFiniteCheckAndUnscale, aclTensorList* scaledGrads, aclTensor* foundInf,
           const aclTensor* invScale);

// Experts.
NPU_SIM_OP(aclnnMoeGatingTopKSoftmaxV2, const aclTensor* x, const aclTensor* finishedOptional,
           int64_t k, int64_t renorm, bool outputSoftmaxResultFlag, const aclTensor* yOut,
           const aclTensor* expertIdxOut, const aclTensor* softmaxResultOutOptional);
NPU_SIM_OP(aclnnMoeTokenPermute, const aclTensor* tokens, const aclTensor* indices,
           int64_t numOutTokens, bool paddedMode, const aclTensor* permuteTokensOut,
           const aclTensor* sortedIndicesOut);
NPU_SIM_OP(aclnnMoeTokenPermuteGrad, const aclTensor* permutedOutputGrad,
           const aclTensor* sortedIndices, int64_t numTopk, bool paddedMode, const aclTensor* out);
NPU_SIM_OP(aclnnMoeTokenUnpermute, const aclTensor* permutedTokens, const aclTensor* sortedIndices,
           const aclTensor* probsOptional, bool paddedMode, const aclIntArray* restoreShapeOptional,
           const aclTensor* out);
NPU_SIM_OP(aclnnMoeTokenUnpermuteGrad, const aclTensor* permutedTokens,
           const aclTensor* unpermutedTokensGrad, const aclTensor* sortedIndices,
           const aclTensor* probsOptional, bool paddedMode, const aclIntArray* restoreShapeOptional,
           const aclTensor* permutedTokensGradOut, const aclTensor* probsGradOut);
}

#include "aclnn_attention.h"
