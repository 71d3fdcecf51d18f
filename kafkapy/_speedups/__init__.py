"""The data plane and the byte kernels, in Cython. See wire.pxd for the cursor all decoding goes through."""
