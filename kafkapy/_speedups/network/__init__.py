"""The Selector loop: acceptors, processors, connections, frames, memory and the bridge to the control plane."""
