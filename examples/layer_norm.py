"""LayerNorm and its gradients from Python: layer_norm.py path/to/libhipnorm.so"""
import sys

import torch

torch.ops.load_library(sys.argv[1])

x = torch.randn(512, 4096, requires_grad=True)
weight = torch.ones(4096, requires_grad=True)
bias = torch.zeros(4096, requires_grad=True)

y = torch.ops.hipnorm.layer_norm(x, [4096], weight, bias)
y.square().mean().backward()

aten = torch.nn.functional.layer_norm(x, [4096], weight, bias)
print("largest difference to F.layer_norm:", (y - aten).abs().max().item())
print("gradient of the weight:", list(weight.grad.shape))
print("what ran:", torch.ops.hipnorm.selected_config("forward", x, [4096]))
