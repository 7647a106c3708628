"""A small matrix that is complete, sound and canonical: what the tests of the reader break in one place."""

from __future__ import annotations

SMALL = """\
# A small matrix.

schema: 1

sources:
  index: {grade: A, what: index pages, read: '2026-12-01'}
  notes: {grade: B, where: 'https://example.org/notes'}

cuda_majors:
  '11': {driver_min: '450.80.02', src: {driver_min: notes}}
  '12': {driver_min: '525.60.13', src: {driver_min: notes}}

toolkits:
  '11.8':
    driver_branch: 520
    driver_min: '450.80.02'
    capabilities: ['5.0', '7.0', '8.0', '9.0']
    releases: {'11.8.0': {driver: '520.61.05'}}
  '12.1':
    driver_branch: 530
    driver_packaged: '530.30.02'
    driver_packaged_of: '12.1.0'
    driver_min: '525.60.13'
    capabilities: ['5.0', '7.0', '7.5', '8.0', '9.0']
    capabilities_specific: [sm_90a]
    compat_branches: [470, 525]
    releases:
      '12.1.0':
        driver: '530.30.02'
        images: {state: supported, os: [ubi9, ubuntu22.04], cudnn: ['8.9.0.131'], src: notes}
        src: {driver: notes}
      '12.1.1': {}

code_runs_on:
  sm_50: {same_major_from: '5.0'}
  sm_70: {same_major_from: '7.0', excepted: ['7.2']}
  sm_90: {same_major_from: '9.0'}

gpus:
  V100:
    capability: '7.0'
    arch: Volta
    kind: datacenter
    tensor_cores: [fp16]
    amp: fp16 with GradScaler
    cuda_first: '9.0'
    cuda_last: '12.9'
    driver_branch_first: 384
    driver_branch_last: 580
    forward_compat: 'yes'
    src: {capability: notes (page 1), amp: 'D: from the tensor cores'}
  H100:
    capability: '9.0'
    aliases: [H100 PCIe 80GB Max]
    arch: Hopper
    kind: datacenter
    tensor_cores: [fp16, bf16]
    amp: bf16
    cuda_first: '11.8'
    forward_compat: 'yes'

driver_branches:
  '535': {kind: LTSB, eol: '2026-06'}

cudnn:
  '8.9.2.26':
    released: '2023-06-01'
    cuda_majors: [11, 12]
    yanked: [11]
    code:
      cu12: {sass: [sm_50, sm_70, sm_90]}
    src: {code: index}

nccl:
  '2.18.1': {cuda_majors: [12]}

bases:
  debian-12:
    distribution: debian
    suite: bookworm
    bootstrap: true
    image: 'docker.io/library/debian:bookworm-slim'
    glibc: '2.36'
    python: '3.11'
    gcc: 12
    machines: [x86_64, aarch64]
    default: true
    eol: '2028-06-30'

gone:
  'nvidia/cuda:latest': {why: it was removed, instead: debian-12, src: notes}

packages:
  numpy:
    '1.26.4': {python: [cp39, cp310, cp311, cp312], glibc: {x86_64: '2.17', aarch64: '2.17'}}

clashes:
  - {framework: pytorch, spec: '<2.4', package: other, needs: '<1.19', why: cuDNN 8, src: notes}

frameworks:
  pytorch:
    package: torch
    aliases: [torch]
    indexes: {own: 'https://example.org/whl/{variant}'}
    beside: [numpy]
    releases:
      '2.1.0':
        released: '2023-10-04'
        requires_python: '>=3.8.0'
        requires: {sympy: '>=1.0'}
        triton: '2.1.0'
        companions: {torchvision: ['0.16.0']}
        ceilings:
          numpy:
            spec: '<2'
            why: NumPy 1 ABI
            first_without: '2.3.0'
            src: 'https://example.org/1 (a thread)'
        builds:
          cu118:
            source: own
            version: '2.1.0+cu118'
            cuda: '11.8'
            wheels:
              x86_64: {python: [cp38, cp310], glibc: '2.17', cubin: [sm_50, sm_90]}
            grade: B
          cu121:
            source: pypi
            also_on: [own]
            version: '2.1.0'
            cuda: '12.1'
            toolkit: '12.1.1'
            cudnn: '8.9.2.26'
            nccl: '2.18.1'
            pins:
              nvidia-cudnn-cu12: '8.9.2.26'
              nvidia-nccl-cu12: '2.18.1'
              cuda-toolkit: '12.1.1 [cudart,nvrtc]'
            local_version: '2.1.0+cu121'
            wheels:
              x86_64:
                python: [cp38, cp310, cp311]
                glibc: '2.5'
                glibc_measured: '2.17'
                cubin: [sm_50, sm_70, sm_90]
                ptx: [compute_90]
                size_mib: 639.1
                src: {python: index}
            grade: A
          cpu-aarch64:
            source: pypi
            version: '2.1.0'
            wheels:
              aarch64: {python: [cp38, cp311], glibc: '2.17'}
            grade: A
        src: {released: index, companions.torchvision: index}
"""
