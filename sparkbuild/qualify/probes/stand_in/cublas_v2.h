// What ggml's host code names of cuBLAS, for a toolkit root that holds compilers alone. Probe units
// are made into PTX and never linked; device code calls none of this.
#pragma once
typedef struct sparkbuild_stand_in * cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TF32_TENSOR_OP_MATH = 3 } cublasMath_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef int cublasComputeType_t;
typedef int cublasGemmAlgo_t;
const char * cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t * handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetStream(cublasHandle_t handle, struct CUstream_st * stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void * workspace, decltype(sizeof 0) size);
