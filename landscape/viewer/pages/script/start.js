// The page says what it is; everything else follows.

const PAGES = {slice: slicePage, compare: comparePage, trajectory: trajectoryPage, contents: contentsPage};

const data = pageData();
window.landscape = {state, choose, plots, openPicture, profileOf, quadraticModel, data};
window.landscape.drawn = Promise.resolve(PAGES[data.page](data));
if (data.live) window.landscape.drawn.then(followNewer);
