#!/usr/bin/env bash
# The calls of experiments/results/networks/whole/README.md, each below ten minutes on one H100.
# whole.sh CALL DATA.npz FOLDER
set -u
call=$1 data=$2 out=$3
python=${PYTHON:-python3}
small=("MobileNetV2" "bottleneck ResNet" "DenseNet" "Inception" "U-Net" "gated MBConv" "residual U-Net")
wide=(--methods bn call --rates 0.1 --decays 5e-4 --side 32 --rows 48000 2000 10000 --batch 256
  --steps 5610 --augment --bfloat16 --refresh 20 --jobs 4 --by-network --deadline 300)
run() { "$python" -m examples.networks.whole --data "$data" --out "$out" "$@"; }
# Products of matrices by cuBLAS, without a search for the fastest: compiling takes the most time.
products="--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"
case $call in
  probe)
    XLA_FLAGS=$products run --networks MobileNetV2 U-Net --methods bn call --lanes 3 --seeds 4 \
      --steps 200 --jobs 4
    ;;
  short)
    XLA_FLAGS=$products run --networks "${small[@]}" --optimizers sgd adamw --lanes 3 --seeds 4 \
      --methods bn call "bn quiet" gn mimicnorm agc --steps 1000 --jobs 12 --deadline 480
    ;;
  long)
    XLA_FLAGS=$products run --networks "${small[@]}" --optimizers sgd adamw --lanes 4 --seeds 5 \
      --methods bn call --steps 3000 --jobs 12 --deadline 470 --rates 0.1 0.3 --decays 1e-3 5e-3 \
      --adamw-rates 0.003 0.01 --adamw-decays 1e-2 2e-1
    ;;
  parts)
    XLA_FLAGS=$products run --networks "${small[@]}" --optimizers sgd --lanes 3 --seeds 4 \
      --methods "call - zero sums" "call - unit start" "call - centered inputs" \
      "call - quiet branches" --steps 1000 --jobs 12 --deadline 240
    ;;
  segmentation)
    for task in shapes pasted; do
      XLA_FLAGS=$products run --task $task --networks "U-Net, pixels" "residual U-Net, pixels" \
        --methods bn call gn --batch 2 --steps 800 --lanes 20 --seeds 21 --jobs 8
    done
    ;;
  parts-cpu)
    run --networks "${small[@]}" --rates 0.1 --seeds 1 --refresh 0 --steps 300 --by-network \
      --methods bn call "call - zero sums" "call - unit start" "call - centered inputs" \
      "call - quiet branches" agc mimicnorm
    ;;
  adamw-cpu)
    fixed=(--seeds 1 --refresh 0 --adamw-rates 0.01 --adamw-decays 1e-1)
    run --networks "${small[@]}" --methods bn call --optimizers adamw "${fixed[@]}"
    run --networks "${small[@]}" --methods call --optimizers "adamw relative" "${fixed[@]}"
    ;;
  long-cpu)
    run --networks "bottleneck ResNet" U-Net --methods bn call --seeds 1 --refresh 0 --steps 3000 --rates 0.1
    ;;
  muon-cpu)
    fixed=(--networks MobileNetV2 "bottleneck ResNet" --steps 300 --seeds 1 --refresh 0 --adamw-decays 1e-1)
    run --methods bn call --optimizers muon --adamw-rates 0.003 0.01 0.03 "${fixed[@]}"
    run --methods call --optimizers "muon relative" --adamw-rates 0.01 0.03 0.1 "${fixed[@]}"
    ;;
  few-cpu)
    run --networks "bottleneck ResNet" --methods bn call "call + noise 0.1" "call + noise 0.3" \
      --rows 6000 2000 10000 --optimizers adamw --refresh 0 --adamw-rates 0.01 --adamw-decays 5e-2 2e-1 5e-1
    ;;
  pasted-cpu)
    run --task pasted --networks "U-Net, pixels" --methods bn call gn --batch 2 --steps 800 \
      --seeds 12 --rates 0.01 0.03 0.1
    ;;
  standard)
    run --networks ResNet-18 VGG16 ShuffleNetV2 "MobileNetV2 1.0" --seeds 2 "${wide[@]}"
    ;;
  resnet50)
    run --networks ResNet-50 --seeds 1 "${wide[@]}"
    ;;
  *)
    echo "$call is none of the calls in $0" >&2
    exit 2
    ;;
esac
