/* A CUDA driver that does nothing but remember the last launch, for tests on machines without one. */
#include <string.h>

#include "cuda.h"

#define NOTHING(name, ...) \
    CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }

long fake_loads, fake_launches;
int fake_parameters; /* how many 8-byte parameters to keep */
unsigned fake_grid[3], fake_block;
unsigned long long fake_stream, fake_values[64];
static int context;

NOTHING(cuCtxSetCurrent, CUcontext context)
NOTHING(cuCtxSetLimit, CUlimit limit, size_t value)
NOTHING(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value)
NOTHING(cuFuncSetCacheConfig, CUfunction function, CUfunc_cache config)
NOTHING(cuModuleUnload, CUmodule module)

CUresult cuCtxGetCurrent(CUcontext *out) {
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *out) {
    *out = 0;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t *out, CUlimit limit) {
    *out = 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *out, int ordinal) {
    *out = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device) {
    *out = 100000;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *out) {
    *out = 12080;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction function) {
    *out = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **out) {
    *out = "an error";
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    *out = (CUfunction)module;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    *out = (CUmodule)++fake_loads;
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr pointer) {
    *(CUdeviceptr *)out = pointer;
    return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out) {
    *out = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    ++fake_launches;
    fake_grid[0] = config->gridDimX;
    fake_grid[1] = config->gridDimY;
    fake_grid[2] = config->gridDimZ;
    fake_block = config->blockDimX;
    fake_stream = (unsigned long long)config->hStream;
    for (int i = 0; i < fake_parameters && i < 64; ++i)
        memcpy(&fake_values[i], parameters[i], 8);
    return CUDA_SUCCESS;
}
