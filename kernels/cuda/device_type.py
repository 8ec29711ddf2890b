"""The type of GPUs among the devices of the registry. Public functions need it for every call, and the rest of this
package only for a call there, so it is a module of its own."""

DEVICE = "cuda"
