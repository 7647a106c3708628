"""The smoke checks: what runs inside images, under any supported framework's Python (3.8 and up).

The folder stands alone: it uses the standard library and the framework under test, is copied into images
as /opt/imgbuild/checks, and runs as `imgbuild-check`, `python -m checks` or `python -m imagebuilder.checks`.
docs/checks.md says what each check proves.
"""
