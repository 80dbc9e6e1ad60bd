// LayerNorm and its gradients from C++.
#include <ATen/ATen.h>
#include <hipnorm/hipnorm.h>

#include <iostream>

int main() {
  at::Tensor x = at::randn({512, 4096}).requires_grad_();
  at::Tensor weight = at::ones({4096}).requires_grad_();
  at::Tensor bias = at::zeros({4096}).requires_grad_();

  at::Tensor y = hipnorm::layer_norm(x, {4096}, weight, bias);
  y.square().mean().backward();

  at::Tensor aten = at::layer_norm(x, {4096}, weight, bias);
  std::cout << "largest difference to at::layer_norm: " << (y - aten).abs().max().item<double>()
            << "\n"
            << "gradient of the weight: " << weight.grad().sizes() << "\n"
            << "what ran: " << hipnorm::selected_config("forward", x, {4096}) << "\n";
}
