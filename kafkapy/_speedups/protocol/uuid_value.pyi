# The functions of this kernel are for other kernels; see uuid_value.pxd.
