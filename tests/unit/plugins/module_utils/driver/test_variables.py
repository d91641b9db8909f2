# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform, resolve

# --- conversion of text ---

TEXTS = [
    ({"components": "video"}, {"components": ["compute", "video"]}),
    ({"components": "compute,opencl"}, {"components": ["compute", "opencl"]}),
    ({"components": ["video"]}, {"components": ["compute", "video"]}),
    ({"extra_packages": "nvtop"}, {"extra_packages": ["nvtop"]}),
    ({"extra_packages": "nvtop, clinfo"}, {"extra_packages": ["nvtop", "clinfo"]}),
    ({"extra_packages": ""}, {}),
    ({"kernel_packages": "linux-headers-mine"}, {"kernel_packages": ["linux-headers-mine"]}),
    ({"kernel_packages": []}, {}),
    ({"hold": "false"}, {"hold": False}),
    ({"hold": "yes"}, {"hold": True}),
    ({"hold": True}, {"hold": True}),
    ({"imex": "false", "activate": "no", "peermem": "0"}, {"imex": False, "activate": False, "peermem": False}),
    ({"memory_hotadd_override": "false"}, {"memory_hotadd_override": False}),
    ({"imex": "auto"}, {"imex": "auto"}),
    ({"imex": "True"}, {"imex": True}),
    ({"imex": True}, {"imex": True}),
    ({"secure_boot_key_enrolled": "False"}, {"secure_boot_key_enrolled": False}),
    ({"reboot_timeout": "60", "lock_timeout": "5"}, {"reboot_timeout": 60, "lock_timeout": 5}),
    ({"module_options": '{"nvidia": {"NVreg_X": 0}}'}, {"module_options": {"nvidia": {"NVreg_X": 0}}}),
    ({"branch": 580, "mirror": "", "version": None}, {"branch": "580"}),
    ({"branch": " 580\n"}, {"branch": "580"}),
]


@pytest.mark.parametrize(("request_", "expected"), TEXTS)
def test_text_is_converted(request_, expected):
    assert driver_request.read(request_) == dataclasses.replace(driver_request.read({}), **expected)


NO_TYPE = [
    ({"hold": "perhaps"}, "nvidia_driver_hold is perhaps, but must be true or false."),
    ({"imex": "always"}, "nvidia_driver_imex is always, but must be auto, true or false."),
    ({"lock_timeout": "soon"}, "nvidia_driver_lock_timeout is soon, but must be a whole number."),
    ({"reboot_timeout": float("inf")}, "nvidia_driver_reboot_timeout is inf, but must be a whole number."),
    ({"components": {"video": 1}}, "nvidia_driver_components is {'video': 1}, but must be a list."),
    (
        {"module_options": "quiet"},
        "nvidia_driver_module_options is quiet, but must be a dictionary. Use the form {nvidia: {",
    ),
]


@pytest.mark.parametrize(("request_", "words"), NO_TYPE)
def test_invalid_text_is_refused(request_, words):
    with pytest.raises(VariableError) as refused:
        driver_request.read(request_)
    assert words in str(refused.value)


AS_TEXT = [
    ({"components": "video"}, {"components": ["compute", "video"]}),
    ({"extra_packages": "nvtop"}, {"extra_packages": ["nvtop"]}),
    ({"hold": "false"}, {"hold": False}),
    ({"activate": "false"}, {"activate": False}),
    ({"imex": "false", "peermem": "false"}, {"imex": False, "peermem": False}),
    ({"peermem": "true"}, {"peermem": True}),
]


@pytest.mark.parametrize(("text", "meant"), AS_TEXT)
def test_plan_does_not_depend_on_text_or_type(text, meant):
    there = host("debian-12", driver={"library": "535.261.03", "on_disk": "535.261.03"})
    assert driver_plan.plan(there, text, platform("debian-12")) == driver_plan.plan(there, meant, platform("debian-12"))
    assert driver_plan.plan(host("debian-12"), text, platform("debian-12")) == driver_plan.plan(
        host("debian-12"), meant, platform("debian-12")
    )


# --- forms ---

SUM = "0123456789abcdef" * 4
GOOD = [
    {"mirror": "https://mirror.example/cuda/repos"},
    {"mirror": "http://10.0.0.1:8080/"},
    {"mirror": "file:///srv/mirror"},
    {"proxy": "http://proxy.example:3128"},
    {"proxy": "http://[2001:db8::1]:3128/"},
    {"key_fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC"},
    {"key_fingerprint": "eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc"},
    {"key_fingerprint": SUM},
    {"key_fingerprint": f"sha256:{SUM}"},
    {"key_fingerprint": f"SHA256: {SUM.upper()}"},
    {"key_url": "https://keys.example/cuda.pub"},
    {"key_url": "file:///srv/cuda.pub"},
    {"runfile_url": "https://mirror.example/x.run"},
    {"runfile_checksum": f"sha256:{SUM}"},
    {"runfile_checksum": f"sha512:{SUM}{SUM}"},
    {"extra_packages": ["nvtop", "libstdc++6", "libfoo:i386", "NetworkManager", "python3.11"]},
    {"kernel_packages": ["linux-headers-6.1.0-47-amd64", "kernel6.12-devel-6.12.40-1.amzn2023.x86_64"]},
    {"reboot_timeout": 1, "lock_timeout": 0},
    {"module_options": {"nvidia": {"NVreg_RegistryDwords": "RMa=1;RMb=2", "NVreg_X": 0}, "nvidia-drm": {"fbdev": 1}}},
    {"module_options": {"nvidia": {"NVreg_RegistryDwords": '"RMa=1; RMb=2"'}}},
]


@pytest.mark.parametrize("request_", GOOD)
def test_valid_values_are_accepted(request_):
    assert resolve(host("debian-12"), request_, platform("debian-12")).errors == []


URL_FORM = "which is not valid. Use the form https://mirror.example"
OPTIONS_FORM = "{nvidia: {NVreg_RestrictProfilingToAdminUsers: 0}}"
BAD = [
    ({"mirror": "not a url"}, ["nvidia_driver_mirror is not a url, ", URL_FORM]),
    ({"mirror": "/srv/x"}, ["nvidia_driver_mirror is /srv/x, ", URL_FORM]),
    ({"mirror": "https://m.example/a\nb"}, ["nvidia_driver_mirror is 'https://m.example/a\\nb', "]),
    ({"mirror": "https:///cuda"}, ["nvidia_driver_mirror is https:///cuda, "]),
    ({"runfile_url": "x.run"}, ["nvidia_driver_runfile_url is x.run, ", URL_FORM]),
    ({"proxy": "x y"}, ["nvidia_driver_proxy is x y, ", "Use the form http://proxy.example:3128"]),
    ({"proxy": "proxy:3128"}, ["nvidia_driver_proxy is proxy:3128, "]),
    ({"proxy": 'http://p:1"; x'}, ['nvidia_driver_proxy is http://p:1"; x, ']),
    ({"proxy": "user:word@proxy:3128"}, ["nvidia_driver_proxy is ...@proxy:3128, "]),
    ({"key_fingerprint": "xyz"}, ["nvidia_driver_key_fingerprint is xyz, ", "40 or 64 hexadecimal digits"]),
    ({"key_fingerprint": "3BF863CC"}, ["nvidia_driver_key_fingerprint is 3BF863CC, "]),
    (
        {"key_fingerprint": f"sha256:{SUM[1:]}"},
        [f"nvidia_driver_key_fingerprint is sha256:{SUM[1:]}, ", "sha256:0123..."],
    ),
    ({"key_fingerprint": f"sha512:{SUM}"}, [f"nvidia_driver_key_fingerprint is sha512:{SUM}, "]),
    ({"key_url": "cuda.pub"}, ["nvidia_driver_key_url is cuda.pub, ", "Use the form https://mirror.example/cuda.pub"]),
    ({"key_url": "user:word@keys.example/cuda.pub"}, ["nvidia_driver_key_url is ...@keys.example/cuda.pub, "]),
    ({"mirror": "http://user:word@10.0.0.1:8080/"}, ["nvidia_driver_mirror is http://...@10.0.0.1:8080/, but"]),
    ({"runfile_checksum": "abc"}, ["nvidia_driver_runfile_checksum is abc, ", "Use the form sha256:0123..."]),
    ({"runfile_checksum": "sha256:abc"}, ["nvidia_driver_runfile_checksum is sha256:abc, "]),
    (
        {"extra_packages": ["--force-yes"]},
        ["nvidia_driver_extra_packages contains --force-yes, which is not valid", "Use the form nvtop (only the name"],
    ),
    ({"extra_packages": [""]}, ["nvidia_driver_extra_packages contains ''", "Use the form nvtop"]),
    ({"extra_packages": ["nvtop=3.0"]}, ["nvidia_driver_extra_packages contains nvtop=3.0, "]),
    ({"kernel_packages": ["linux-headers-*"]}, ["nvidia_driver_kernel_packages contains linux-headers-*, "]),
    (
        {"version": "3:615.71.09-1.el9"},
        # The role chooses the revisions of the packages.
        ["nvidia_driver_version is 3:615.71.09-1.el9, ", "Use the form 580.95.05"],
    ),
    ({"reboot_timeout": 0}, ["nvidia_driver_reboot_timeout is 0, ", "must be 1 or more"]),
    ({"lock_timeout": -5}, ["nvidia_driver_lock_timeout is -5, ", "must be 0 or more"]),
    ({"module_options": {"nvidia": 5}}, ["nvidia_driver_module_options.nvidia is 5, but", OPTIONS_FORM]),
    ({"module_options": {"nvidia": ["a"]}}, [".nvidia is ['a'], but", OPTIONS_FORM]),
    ({"module_options": {"nvidia": {"a": ["b"]}}}, [".nvidia.a is ['b'], but", OPTIONS_FORM]),
    ({"module_options": {"nvidia": {"a": None}}}, [".nvidia.a is None, but"]),
    ({"module_options": {"nvidia": {"a": "1\ninstall x /bin/sh"}}}, ["nvidia.a is '1\\ninstall x /bin/sh', but"]),
    ({"module_options": {"nvidia": {"a": "1 2"}}}, [".nvidia.a is '1 2', but", "double quotes inside the value"]),
    ({"module_options": {"nvidia": {"a": "1\\"}}}, ["module_options.nvidia.a is"]),
    ({"module_options": {"nvidia": {"a b": 1}}}, [".nvidia contains 'a b', which is not an option name"]),
    ({"module_options": {"nvidia drm": {"a": 1}}}, ["contains 'nvidia drm', which is not a module name", OPTIONS_FORM]),
]


@pytest.mark.parametrize(("request_", "words"), BAD)
@pytest.mark.parametrize("key", ["debian-12", "el-9"])
def test_invalid_values_are_refused(key, request_, words):
    result = driver_plan.plan(host(key), request_, platform(key))
    assert (len(result.errors), result.acts) == (1, False)
    for word in words:
        assert word in result.errors[0]
    assert "word@" not in result.errors[0]


def test_module_options_are_written_to_file():
    request = {"module_options": {"nvidia": {}, "nvidia_drm": {"modeset": True, "fbdev": False}}}
    files = driver_plan.plan(host("debian-12"), request, platform("debian-12")).todo.files
    text = next(file["content"] for file in files if file["path"] == owned.MODPROBE)
    assert "\noptions nvidia_drm fbdev=0 modeset=1\n" in text
    assert "options nvidia " not in text
