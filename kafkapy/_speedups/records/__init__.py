"""Record batches and message sets: layout, compression, builders, iterators and files of records."""
