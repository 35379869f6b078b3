# One image for every role: driver, engines, learner ranks, reward workers.
#
#   docker build --build-arg TARGET=cpu -t rlvr .
#   docker build --build-arg TARGET=gpu --build-arg BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04 -t rlvr-gpu .
#   docker run --rm --shm-size=4g rlvr conf=quickstart
#
# Weights travel from the learner to the engines of a host through shared memory: --shm-size must hold the model.

ARG BASE=ubuntu:24.04
FROM ${BASE}

ARG TARGET=cpu
ENV DEBIAN_FRONTEND=noninteractive PYTHONUNBUFFERED=1

# Python's headers and a C++ compiler: on a CPU, vLLM's sampler compiles a few functions when it first runs.
RUN apt-get update \
    && apt-get install --no-install-recommends -y build-essential ca-certificates make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV PIP_NO_CACHE_DIR=1
WORKDIR /opt/rlvr

# First what changes seldom, so that a change of the code does not install everything anew.
COPY Makefile ./
COPY requirements requirements
RUN make .venv/.done/${TARGET} TARGET=${TARGET}

COPY pyproject.toml README.md LICENSE ./
COPY actors actors
COPY conf conf
COPY launch launch
COPY rlvr rlvr
RUN make install TARGET=${TARGET}

# Runs do not need root, and model-written code must not have it.
RUN useradd --create-home rlvr && mkdir /work && chown rlvr:rlvr /work && chmod -R a+rX /opt/rlvr
USER rlvr
WORKDIR /work
ENV PATH=/opt/rlvr/.venv/bin:${PATH}

ENTRYPOINT ["rlvr"]
CMD ["--help"]
