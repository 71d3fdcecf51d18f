"""The data plane and the byte kernels, in Cython. See base/wire.pxd for the cursor all decoding goes through."""
