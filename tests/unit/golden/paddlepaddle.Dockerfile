# paddlepaddle-3.0.0-cuda12.1-cudnn9-py3.11-debian12
# Rendered by imgbuild 0.1.0. Build it by hand, to the same digest, with:
#   docker buildx build --provenance=false --build-arg SOURCE_DATE_EPOCH=1755043200 \
#     --output type=image,name=paddlepaddle:3.0.0-cuda12.1-cudnn9-py3.11-debian12,oci-mediatypes=true,compression=zstd,compression-level=7,force-compression=true .
# A private CA and a package mirror come in as build secrets (`ca`, `index`, `apt`) and stay out of the image.
FROM scratch AS base
ADD base.tar /

# Python, and the compiler that torch.compile needs at run time.
FROM base AS system
RUN --mount=type=bind,source=scripts/install-debs,target=/run/imgbuild/install-debs \
    --mount=type=bind,source=debs.txt,target=/run/imgbuild/debs.txt \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt,mode=0444 \
    --mount=type=cache,id=imgbuild-apt-debian-12-amd64,target=/run/imgbuild/apt,sharing=locked \
    /run/imgbuild/install-debs trainer 1000 /home/trainer

# The installer, on the base alone so that it runs beside the system stage: nothing of it is in the image.
FROM base AS installer
RUN --mount=type=bind,source=scripts/install-uv,target=/run/imgbuild/install-uv \
    --mount=type=bind,source=uv.txt,target=/run/imgbuild/uv.txt \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt,mode=0444 --mount=type=secret,id=index \
    --mount=type=cache,id=imgbuild-apt-installer-debian-12-amd64,target=/run/imgbuild/apt,sharing=locked \
    /run/imgbuild/install-uv

# nvidia-cudnn-cu12 9.1.0.70
FROM installer AS nvidia-cudnn-cu12
RUN --mount=type=bind,source=scripts/install-wheels,target=/run/imgbuild/install-wheels \
    --mount=type=bind,source=wheels/nvidia-cudnn-cu12.txt,target=/run/imgbuild/wheels.txt \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=index \
    --mount=type=cache,id=imgbuild-uv,target=/root/.cache/uv \
    /run/imgbuild/install-wheels

# paddlepaddle-gpu 3.0.0
FROM installer AS paddlepaddle
RUN --mount=type=bind,source=scripts/install-wheels,target=/run/imgbuild/install-wheels \
    --mount=type=bind,source=wheels/paddlepaddle.txt,target=/run/imgbuild/wheels.txt \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=index \
    --mount=type=cache,id=imgbuild-uv,target=/root/.cache/uv \
    /run/imgbuild/install-wheels

# What the framework needs of Python packages
FROM installer AS python
RUN --mount=type=bind,source=scripts/install-wheels,target=/run/imgbuild/install-wheels \
    --mount=type=bind,source=wheels/python.txt,target=/run/imgbuild/wheels.txt \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=index \
    --mount=type=cache,id=imgbuild-uv,target=/root/.cache/uv \
    /run/imgbuild/install-wheels

# What the image knows of itself, and the checks that run in it.
FROM base AS metadata
RUN --mount=type=bind,source=metadata,target=/run/imgbuild/metadata \
    --mount=type=bind,source=scripts/install-metadata,target=/run/imgbuild/install-metadata \
    /run/imgbuild/install-metadata

FROM system AS image
COPY --link --from=nvidia-cudnn-cu12 /layer/ /
COPY --link --from=paddlepaddle /layer/ /
COPY --link --from=python /layer/ /
COPY --link --from=metadata /layer/ /

ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    VIRTUAL_ENV=/opt/venv \
    HOME=/home/trainer \
    USER=trainer \
    LOGNAME=trainer \
    LANG=C.UTF-8 \
    PYTHONNOUSERSITE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_CONSTRAINT=/opt/imgbuild/constraints.txt \
    UV_CONSTRAINT=/opt/imgbuild/constraints.txt \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_REQUIRE_CUDA="cuda>=12.0"

LABEL io.imgbuild.compute-capabilities="5.0 8.0 9.0" \
      io.imgbuild.cuda="12.1" \
      io.imgbuild.cudnn="9.1.0.70" \
      io.imgbuild.driver.min="525.60.13" \
      io.imgbuild.driver.packaged="530.30.02" \
      io.imgbuild.framework="paddlepaddle" \
      io.imgbuild.framework.version="3.0.0" \
      io.imgbuild.matrix="sha256:0000000000000000000000000000000000000000000000000000000000000000" \
      io.imgbuild.nccl="2.20.5" \
      io.imgbuild.python="3.11" \
      io.imgbuild.stack="paddlepaddle-3.0.0-cuda12.1-cudnn9-py3.11-debian12" \
      io.imgbuild.templates="sha256:TEMPLATES" \
      io.imgbuild.tool="0.1.0" \
      org.opencontainers.image.base.digest="sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" \
      org.opencontainers.image.description="paddlepaddle 3.0.0 with CUDA 12.1, Python 3.11, debian-12" \
      org.opencontainers.image.title="paddlepaddle-3.0.0-cuda12.1-cudnn9-py3.11-debian12" \
      org.opencontainers.image.version="3.0.0-cuda12.1-cudnn9-py3.11-debian12" \
      io.imgbuild.build-key="sha256:KEY"

WORKDIR /workspace
# By number: Kubernetes' runAsNonRoot cannot judge a name.
USER 1000
ENTRYPOINT ["/usr/bin/python3", "-IS", "/opt/imgbuild/checks/gate.py"]
CMD ["python"]
