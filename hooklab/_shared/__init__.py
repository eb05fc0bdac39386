"""What the tools share: sessions, trees of tensors, names that changed, the compiler, private names of torch."""
