"""What every kernel may use: the checked cursor, POSIX calls, threads, checksums, hashes, sends and sockets."""
